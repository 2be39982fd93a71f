"""The first weights. The residual stream starts with a part for meaning (MiniLM, words only) and a part for symbols (labels,
ids, punctuation); some heads start as plain copies between these parts and are told where to look (LOOK). train.py calls `build`.
"""
import os

import torch

import model as M

# Heads that are told where to look: name -> (layer, head, scores). The row before a slot reads its id; option lines read
# their label and their question's id, "yes" lines the wording of their question; then the row before the slot reads the state and takes an option; the slot copies it.
LOOK = {"own": (0, 0, M.ask_looks), "letter": (1, 0, M.line_looks), "header": (1, 2, M.line_looks), "topic": (1, 3, M.yes_looks), "match": (2, 0, M.word_looks), "match2": (2, 2, M.word_looks), "state": (3, 0, M.ask_looks), "before": (4, 0, M.slot_looks)}
FINDERS = ("own", "letter", "header", "topic", "before")  # look by place, not by meaning: learnt first


def build(enc, tokens, seed):
    """A fresh model and the mask of embedding entries that train. The first dimensions of the residual stream hold meaning
    (MiniLM, words only), the rest hold symbols (labels, punctuation). The supervised heads start as plain copies between
    these parts, and sublayers write softly, so that meaning can be compared in the upper layers from the first step."""
    torch.manual_seed(seed)
    model = M.Model(M.config(vocab=enc.vocab))
    d = torch.load(os.path.join(tokens, "words.pt"))
    rows, dims, H = d["is_word"].nonzero()[:, 0], d["table"].shape[1], model.emb.shape[1]
    sel = lambda at: torch.eye(H)[list(at)]
    sent = 72
    u = sel([*range(32), *range(sent, sent + 32)])  # the strongest dimensions of both halves
    orthogonal = lambda n: torch.linalg.qr(torch.randn(n, 32))[0].T
    letter = sel(range(dims, dims + 32))  # codes of labels
    name = .7 * (orthogonal(64) @ u + orthogonal(32) @ letter)  # codes of ids, which may be words (team) or symbols (q1)
    to_name = sel(range(dims + 32, H))
    is_label = torch.tensor(sorted(enc.label_ids | set(enc.glued.values())))
    flag_word, flag_label = dims + 31, dims + 30
    with torch.no_grad():
        model.emb[:, :dims] = 0
        model.emb[:, dims:] = torch.nn.functional.normalize(torch.randn(enc.vocab, H - dims), dim=-1)
        model.emb[rows, :dims] = .9 * d["table"][rows]
        model.emb[rows, dims:] *= .15
        model.emb[:, [flag_word, flag_label]] = 0
        model.emb[rows, flag_word] = .2
        model.emb[is_label, dims + 32:] *= .3
        model.emb[is_label, flag_label] = .3
        model.norm[:dims], model.norm[dims:] = .1, 1.7
        for l, attn in zip(model.layers, (.7, 1, 1, 1.2, 2)):
            l.n_attn.fill_(attn)
            l.n_post.fill_(.1)
            l.o *= .3
        hd = 64
        turn, still = [*range(8), *range(32, 40)], [*range(8, 32), *range(40, 64)]

        def wire(layer, group, value, out, at):
            """Rows `at` of the group's values carry `value`; the group's first head writes them to `out`."""
            l = model.layers[layer]
            at = torch.tensor(at)
            (l.k_ if l.v is None else l.v)[group * hd + at] = value
            head = group * (l.nh // l.nkv) * hd
            l.o[:, head:head + hd] = 0
            l.o[:, head + at] = out.T

        any_row = list(range(32))
        wire(0, 0, name, to_name, any_row)
        wire(1, 0, letter, letter, any_row)
        wire(1, 1, name, to_name, any_row)
        wording, head3 = sel([*range(16), *range(sent, sent + 16)]), 3 * hd  # the fourth head copies words of the question
        model.layers[1].v[hd + 32:2 * hd] = wording
        model.layers[1].o[:, head3:head3 + hd] = 0
        model.layers[1].o[:, head3 + 32:head3 + hd] = wording.T
        # words of the state look at option lines with like words (never at themselves: options carry a label's flag) and
        # take over label and id; the row before the slot collects the labels from words whose id is its own
        codes = torch.cat([letter[:30], letter[:2] * 0])[:16]
        for group, content in ((0, [*range(16), *range(sent, sent + 16)]), (1, [*range(16, 32), *range(sent + 16, sent + 32)])):
            l, g = model.layers[2], group * (model.layers[2].nh // model.layers[2].nkv)
            wire(2, group, codes, codes, still[32:])
            l.k_[group * hd + torch.tensor(turn)] = to_name[:16]
            l.o[:, g * hd + torch.tensor(turn)] = to_name[:16].T
            l.k_[group * hd + torch.tensor(still[:31])] = l.q[g * hd + torch.tensor(still[:31])] = 1.5 * sel(content[:31])
            l.q[g * hd + torch.tensor(still[32:] + turn)] *= .1
            l.q[g * hd + still[31]], l.k_[group * hd + still[31]] = 2 * sel([flag_word])[0], 2 * sel([flag_label])[0]
        wire(3, 0, letter, letter, still[:32])
        l = model.layers[3]
        l.k_[still[32:]] = l.q[still[32:]] = to_name[:16]
        l.q[still[:32]] *= .1
        mix = torch.linalg.qr(torch.randn(32, 16))[0].T @ letter
        wire(3, 1, mix, mix, turn)
        g = l.nh // l.nkv * hd
        l.k_[hd + torch.tensor(still)] = l.q[g + torch.tensor(still)] = sel([*range(24), *range(sent, sent + 24)])
        l.q[g + torch.tensor(turn)] *= .1
        wire(4, 0, letter, letter, still[:32])
        model.layers[4].q[still[:32]] *= .1
    free = torch.ones_like(model.emb)
    free[rows, :dims] = 0  # the meaning of a word stays as MiniLM has it, also for words that training never shows
    return model, free


def freeze(model):
    """Other norm weights, router scales and layer scalars stay at one: their gradients cost more than they bring."""
    for l in model.layers:
        for p in (l.n_in, l.n_ff, l.n_ff2, l.n_post1, l.n_post2, l.r_scale, l.r_exp, l.s_dec, l.s_enc):
            p.requires_grad_(False)
