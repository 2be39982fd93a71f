"""Trains the demo model on an endless stream of generated decisions. One thread; bf16 activations, f32 weights.

  python train.py OUT --tokens DIR --minutes 60 [--init STATE.pt] [--decay 1.0]
DIR holds tokenizer.json (vocab.py) and words.pt (embed.py). Writes OUT/state.pt every few minutes, at the end and on
SIGINT or SIGTERM, and OUT/log.txt; `--init OUT/state.pt` goes on from there with the optimiser's state. The learning rate is
constant, then falls to zero over the last `--decay` part of the minutes. Stopped time (SIGSTOP) does not count.
"""
import argparse
import json
import math
import os
import random
import signal
import time

import torch
import torch.nn.functional as F

import attention
import decide
import generate as g
import lexicon
import model as M
from optim import Muon
from pack import Augment, Encoder, Packer
from probe import Probe

# Heads that are told where to look: name -> (layer, head, scores). The row before a slot reads its id; option lines read
# their label and their question's id; then the row before the slot reads the state and takes an option; the slot copies it.
LOOK = {"own": (0, 0, M.ask_looks), "letter": (1, 0, M.line_looks), "header": (1, 2, M.line_looks), "match": (2, 0, M.word_looks), "match2": (2, 2, M.word_looks), "state": (3, 0, M.ask_looks), "option": (3, 2, M.ask_looks), "before": (4, 0, M.slot_looks)}


LOOK_ON = {"block": (2, 0, M.slot_looks), "state": (3, 1, M.slot_looks), "option": (4, 0, M.slot_looks)}
WEIGHTS_ON = {"support": .25, "code": .22, "security": .22, "injection": .06, "router": .06, "contract": .07, "generic": .12, "lexicon": 0}


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
    letter, name = sel(range(dims, dims + 32)), torch.linalg.qr(torch.randn(64, 32))[0].T @ u  # codes of labels, of ids
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
            l.n_post.fill_(.3)
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


@torch.no_grad()
def check(model, batches):
    """(mean cross-entropy over the labels, {group: (accuracy on clear items, n)})."""
    stat, loss, cnt = {}, 0.0, 0
    for b in batches:
        h, _, _ = model(b, dtype=torch.bfloat16)
        lg = model.logits(h[b["at"]])
        for i in range(len(b["at"])):
            n = int(b["n"][i])
            lp = torch.log_softmax(lg[i, b["lab"][i, :n]], -1)
            loss -= float((lp * b["prob"][i, :n]).sum())
            cnt += 1
            if float(b["prob"][i, :n].max()) < .7:
                continue
            ok = int(lp.argmax() == b["prob"][i, :n].argmax())
            for key in ("all", b["typ"][i], b["fam"][i][:4] + "." + b["typ"][i][:2]):
                s = stat.setdefault(key, [0, 0])
                s[0] += ok
                s[1] += 1
    return loss / cnt, {k: (round(a / n, 3), n) for k, (a, n) in stat.items()}


def looking(point, b):
    """Losses of the supervised heads, the option last; empty groups count nothing."""
    neg = lambda x, m: x.masked_fill(~m, -1e9)
    out = []
    for name in [k for k in point if k not in ("option", "pool")]:
        x, m = point[name], b[name.rstrip("2")]
        if not len(x):
            out.append(torch.zeros(()))
            continue
        out.append((torch.logsumexp(x, -1) - torch.logsumexp(neg(x, m), -1)).mean())
    p = torch.softmax(point["option"], -1)
    share = p.new_zeros(len(p), int(b["option"].max()) + 1).scatter_add_(1, b["option"], p)[:, 1:]
    gold = b["prob"][b["aux"]][:, :share.shape[1]]
    out.append(-(gold * torch.log(share[:, :gold.shape[1]] + 1e-6)).sum(-1).mean())
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--tokens", required=True)
    ap.add_argument("--minutes", type=float, default=60)
    ap.add_argument("--decay", type=float, default=.4)
    ap.add_argument("--init")
    ap.add_argument("--from-model", help="train an exported checkpoint on, with its own shape and tokenizer (layers S S F S F)")
    ap.add_argument("--trees", type=int, default=5)
    ap.add_argument("--kids", type=int, default=8)
    ap.add_argument("--lr", type=float, default=.012)
    ap.add_argument("--slow", type=float, default=.35, help="share of --lr for matrices that start wired")
    ap.add_argument("--adam-lr", type=float, default=1e-3)
    ap.add_argument("--easy", type=float, default=150e3, help="labels over which small matching sheets fade out")
    ap.add_argument("--hint", type=float, default=.4, help="weight of the looking losses; fades out over --hint-labels")
    ap.add_argument("--hint-labels", type=float, default=900e3)
    ap.add_argument("--check", type=int, default=400, help="steps between looks at held-out batches")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=1)
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    lexicon.PATH = a.tokens
    os.makedirs(a.out, exist_ok=True)
    if a.from_model:
        model, enc = decide.load(a.from_model)
        aug, free, look = True, torch.ones_like(model.emb), LOOK_ON
        g.FAMILIES.update({f: (*g.FAMILIES[f][:2], w) for f, w in WEIGHTS_ON.items()})
    else:
        enc, aug, look = Encoder(os.path.join(a.tokens, "tokenizer.json")), Augment(os.path.join(a.tokens, "words.pt")), LOOK
        model, free = build(enc, a.tokens, a.seed)
    freeze(model)
    mats = [p for n, p in model.named_parameters() if p.ndim >= 2 and n != "emb" and not n.endswith("r_proj")]
    ids = {id(p) for p in mats}
    probe = Probe(model.c["hidden_size"])
    rest = [p for p in model.parameters() if id(p) not in ids and p.requires_grad] + list(probe.parameters())
    fast = {id(model.layers[0].q)} if a.from_model else {id(p) for i, l in enumerate(model.layers) for p in ((l.q, l.k_) if l.v is not None else (l.q,) if i > 2 else ())}  # where to look is learnt, what is copied starts wired
    opts = [Muon([p for p in mats if id(p) in fast], a.lr), Muon([p for p in mats if id(p) not in fast], a.lr), torch.optim.Adam(rest, lr=a.adam_lr, betas=(.9, .98), fused=True)]
    step, labels = 0, 0
    if a.init:
        s = torch.load(a.init)
        model.load_state_dict(s["model"])
        step, labels = s["step"], s["labels"]
        if "probe" in s:
            probe.load_state_dict(s["probe"])
            for o, x in zip(opts, s["opts"]):
                o.load_state_dict(x)
    base = [a.lr, a.lr * a.slow, a.adam_lr]
    packer = Packer(enc, random.Random(a.seed * 1000003 + step), "train", a.trees, a.kids, augment=aug)
    held = {"held": ("held", None, 8), "unseen topics": ("unseen", "generic", 2), "train": ("train", None, 2)}
    held = {k: [p.batch() for p in [Packer(enc, random.Random(99), split, 4, 6, fam)] for _ in range(n)] for k, (split, fam, n) in held.items()}
    log = open(os.path.join(a.out, "log.txt"), "a")

    def say(*x):
        print(*x, flush=True)
        print(*x, file=log, flush=True)

    def save():
        path = os.path.join(a.out, "state.pt")
        torch.save({"config": model.c, "model": model.state_dict(), "probe": probe.state_dict(), "opts": [o.state_dict() for o in opts], "step": step, "labels": labels}, path + ".new")
        os.replace(path + ".new", path)

    stop = []
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, lambda *_: stop.append(1))
    attention.compile_kernels()
    for l in model.layers:
        l.pre, l.post = torch.compile(l.pre, dynamic=True), torch.compile(l.post, dynamic=True)
    say(time.strftime("%H:%M:%S"), "parameters", sum(p.numel() for p in model.parameters()), vars(a))
    shown = ()
    used, ema, saved, rate = 0.0, None, time.time(), [labels, 0.0]
    while True:
        t = time.time()
        frac = used / (60 * a.minutes)
        if frac >= 1 or stop:
            break
        packer.easy = .85 * max(0, 1 - labels / a.easy)
        b = packer.batch()
        k = min(1, (step + 1) / 60) * min(1, (1 - frac) / max(a.decay, 1e-6))
        for o, lr in zip(opts, base):
            o.param_groups[0]["lr"] = lr * k
        hint = 2 * a.hint * max(0, 1 - labels / a.hint_labels) * (step % 2)
        sc = rows = None
        if labels > a.easy and random.random() < .05:  # self-conditioning, for steps after the first
            with torch.no_grad():
                h, _, _ = model(b, dtype=torch.bfloat16)
                rows = b["canvas"][:, 0].nonzero()[:, 0]
                lg = model.logits(h[rows]) / random.choice([.4, .8, 1.0])
                sc = torch.softmax(lg, -1) @ model.emb * math.sqrt(model.c["hidden_size"])
        h, bal, point = model(b, sc, rows, look if hint > 0 else None, torch.bfloat16)
        lp = torch.log_softmax(model.logits(h[b["at"]]), -1)
        ce = -(lp.gather(1, b["lab"]) * b["prob"]).sum(-1)
        loss = (ce * b["w"]).sum() / b["w"].sum() + .01 * bal / len(model.layers)
        if hint > 0:
            hints = looking(point, b) + [probe(point["pool"], b["facts"])]
            loss = loss + hint * sum(hints)
            shown = hints
        loss.backward()
        model.emb.grad.mul_(free)
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        for o in opts:
            o.step()
            o.zero_grad()
        full = b["w"] == 1
        x = float(ce[full].mean().detach())
        labels += int(full.sum())
        ema = x if ema is None else .98 * ema + .02 * x
        step += 1
        used += min(time.time() - t, 20)
        if step % 50 == 0 or step <= 3:
            say(f"{time.strftime('%H:%M:%S')} step {step} {used / 60:.1f}min loss {x:.3f} ema {ema:.3f} labels {labels} labels/s {(labels - rate[0]) / max(used - rate[1], 1):.0f} hints {' '.join(f'{float(v.detach()):.2f}' for v in shown)} fill {b['fill']:.2f} lr {k:.2f}")
            rate = [labels, used]
        if step % a.check == 0:
            model.eval()
            for name, bs in held.items():
                l, s = check(model, bs)
                say(f"  {name}: loss {l:.3f}", " ".join(f"{k}:{v[0]}" for k, v in sorted(s.items())))
            model.train()
        if time.time() - saved > 60:
            save()
            saved = time.time()
    save()
    for name, bs in held.items():
        l, s = check(model, bs)
        say(f"final {name}: loss {l:.3f}", json.dumps(s))


if __name__ == "__main__":
    main()
