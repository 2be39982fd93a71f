"""One decision with the training model in f32, as the contract reads it: prompt, canvas, one forward, label logits."""
import json
import math
import os

import torch
from safetensors.torch import load_file

import contract
import model as M
from encoder import Encoder


def load(path):
    """(model, encoder) from an exported folder: the stored bf16 weights, f32 compute."""
    t = json.load(open(os.path.join(path, "config.json")))["text_config"]
    c = M.config(vocab=t["vocab_size"], hidden=t["hidden_size"], heads=t["num_attention_heads"], kv=t["num_key_value_heads"], hd=t["head_dim"], ghd=t["global_head_dim"], gkv=t["num_global_key_value_heads"],
                 ff=t["intermediate_size"], experts=t["num_experts"], ffe=t["moe_intermediate_size"], window=t["sliding_window"], kinds=t["layer_types"])
    m = M.Model(c)
    M.import_state(m, load_file(os.path.join(path, "model.safetensors")))
    return m.eval(), Encoder(os.path.join(path, "tokenizer.json"))


def prompt_ids(enc, schema, state):
    if schema.get("layout") == "document_first":
        return enc(contract.render_document_first(schema, state))
    return enc(contract.render_prefix(schema)) + enc(contract.render_suffix(state))


def canvas_of(enc, schema, rng):
    """(canvas ids with noise in the slots, slot positions, label ids of each slot)."""
    ids, slots, labels = enc.template(schema["questions"])
    ids = list(ids)
    for s in slots:
        ids[s] = rng.randrange(enc.vocab)
    return ids, slots, labels


@torch.no_grad()
def logits(m, prompt, canvas, sc=None):
    """Soft-capped logits [canvas, vocab]; sc: logits of the step before, for self-conditioning."""
    n, c = len(prompt), len(canvas)
    rows = torch.arange(n, n + c)
    b = dict(ids=torch.tensor(prompt + canvas), pos=torch.arange(n + c), canvas=(torch.arange(n + c) >= n)[:, None], mask=M.masks(torch.tensor([0]), torch.tensor([n]), torch.tensor([c]), 1, 0, n + c), shape=(1, 0, 1, n + c))
    h, _, _ = m(b, None if sc is None else torch.softmax(sc, -1) @ m.emb * math.sqrt(m.c["hidden_size"]), None if sc is None else rows)
    return m.logits(h[n:])


def decide(m, enc, schema, state, rng, steps=1):
    """Label logits of every question, and the mass its labels had in the full row."""
    prompt, (canvas, slots, labels), sc = prompt_ids(enc, schema, state), canvas_of(enc, schema, rng), None
    for k in range(steps):
        lg = logits(m, prompt, canvas, sc)
        sc = lg / (.4 + .4 * (steps - k) / steps)
        if k + 1 < steps:
            for s in slots:
                canvas[s] = int(torch.multinomial(torch.softmax(sc[s], -1), 1))
    return [lg[s, ls] for s, ls in zip(slots, labels)], [float(torch.softmax(lg[s], -1)[ls].sum()) for s, ls in zip(slots, labels)]
