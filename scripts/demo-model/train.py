"""Trains the demo model on an endless stream of generated decisions. One thread; f32 weights, activations in --dtype
(`auto`: bf16 where the processor multiplies it, AMX or AVX-512; elsewhere that is several times slower than f32).

  python train.py OUT --tokens DIR --minutes 60 [--init STATE.pt] [--decay 1.0]
DIR holds tokenizer.json (vocab.py) and words.pt (embed.py). Writes OUT/state.pt every few minutes, at the end and on
SIGINT or SIGTERM, and OUT/log.txt; `--init OUT/state.pt` goes on from there with the optimiser's state. The learning rate is
constant, then falls to zero over the last `--decay` part of the minutes. Minutes are those of the processor: time that other
programs had, or that the process was stopped, does not count.

From nothing, three stages: `--find` steps teach the plain heads of wiring.py where to look, `--bind` steps teach small matching
sheets, then everything is mixed, with fewer and fewer small sheets (`--easy`).
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
import lexicon
import model as M
import optim
from encoder import Encoder
from optim import Muon
from pack import Augment, Packer
from probe import Probe
from sheets import FAMILIES
from wiring import FINDERS, LOOK, build, freeze

LOOK_ON = {"block": (2, 0, M.slot_looks), "state": (3, 1, M.slot_looks), "option": (4, 0, M.slot_looks)}
WEIGHTS_ON = {"support": .25, "code": .22, "security": .22, "injection": .06, "router": .06, "contract": .07, "generic": .12, "lexicon": 0}


@torch.no_grad()
def check(model, batches, dtype):
    """(mean cross-entropy over the labels, {group: (accuracy on clear items, n)})."""
    stat, loss, cnt = {}, 0.0, 0
    for b in batches:
        h, _, _ = model(b, dtype=dtype)
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
    """Loss of each supervised head; empty groups count nothing."""
    neg = lambda x, m: x.masked_fill(~m, -1e9)
    out = {}
    for name in [k for k in point if k not in ("option", "pool")]:
        x, m = point[name], b[name.rstrip("2")]
        if not len(x):
            out[name] = torch.zeros(())
            continue
        out[name] = (torch.logsumexp(x, -1) - torch.logsumexp(neg(x, m), -1)).mean()
    if "option" not in point:
        return out
    p = torch.softmax(point["option"], -1)
    share = p.new_zeros(len(p), int(b["option"].max()) + 1).scatter_add_(1, b["option"], p)[:, 1:]
    gold = b["prob"][b["aux"]][:, :share.shape[1]]
    out["option"] = -(gold * torch.log(share[:, :gold.shape[1]] + 1e-6)).sum(-1).mean()
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("out")
    ap.add_argument("--tokens", required=True)
    ap.add_argument("--minutes", type=float, default=60)
    ap.add_argument("--decay", type=float, default=.4)
    ap.add_argument("--init")
    ap.add_argument("--from-model", help="train an exported checkpoint on, with its own shape and tokenizer (layers S S F S F)")
    ap.add_argument("--trees", type=int, default=6)
    ap.add_argument("--kids", type=int, default=4)
    ap.add_argument("--lr", type=float, default=.006)
    ap.add_argument("--slow", type=float, default=.35, help="share of --lr for matrices that start wired")
    ap.add_argument("--adam-lr", type=float, default=1e-3)
    ap.add_argument("--find", type=int, default=120, help="steps of the first stage, at twice --lr")
    ap.add_argument("--bind", type=int, default=200, help="steps of the second stage")
    ap.add_argument("--easy", type=float, default=60e3, help="labels over which small matching sheets fade out")
    ap.add_argument("--hint", type=float, default=.4, help="weight of the looking losses; fades out over --hint-labels")
    ap.add_argument("--hint-labels", type=float, default=900e3)
    ap.add_argument("--average", type=float, default=100, help="steps over which the exported average of the weights reaches")
    ap.add_argument("--check", type=int, default=400, help="steps between looks at held-out batches")
    ap.add_argument("--seed", type=int, default=1)
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--dtype", choices=["auto", "bf16", "f32"], default="auto")
    a = ap.parse_args()
    bf16 = torch.cpu._is_avx512_bf16_supported() if a.dtype == "auto" else a.dtype == "bf16"
    dtype = torch.bfloat16 if bf16 else torch.float32
    optim.MATMUL = dtype
    torch.set_num_threads(a.threads)
    lexicon.PATH = a.tokens
    os.makedirs(a.out, exist_ok=True)
    if a.from_model:
        model, enc = decide.load(a.from_model)
        aug, free, look = True, torch.ones_like(model.emb), LOOK_ON
        FAMILIES.update({f: (*FAMILIES[f][:2], w) for f, w in WEIGHTS_ON.items()})
        a.find = a.bind = 0
    else:
        enc, aug, look = Encoder(os.path.join(a.tokens, "tokenizer.json")), Augment(os.path.join(a.tokens, "words.pt")), LOOK
        model, free = build(enc, a.tokens, a.seed)
    freeze(model)
    mats = [p for n, p in model.named_parameters() if p.ndim >= 2 and n != "emb" and not n.endswith("r_proj")]
    ids = {id(p) for p in mats}
    probe = Probe(model.c["hidden_size"])
    rest = [p for p in model.parameters() if id(p) not in ids and p.requires_grad] + list(probe.parameters())
    fast = {id(model.layers[0].q)} if a.from_model else {id(p) for i, l in enumerate(model.layers) for p in ((l.q, l.k_) if l.v is not None else (l.q,))}  # where to look is learnt, what is copied starts wired
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
    average = {k: v.detach().clone() for k, v in model.state_dict().items()}
    if a.init and "average" in s:
        average = s["average"]
    finder = Muon([p for i in (0, 1) for p in (model.layers[i].q, model.layers[i].k_)] + [model.layers[4].q], 2 * a.lr)
    packer = Packer(enc, random.Random(a.seed * 1000003 + step), "train", a.trees, a.kids, augment=aug)
    held = {"held": ("held", None, 8), "unseen topics": ("unseen", "generic", 2), "train": ("train", None, 2)}
    held = {k: [p.batch() for p in [Packer(enc, random.Random(99), split, 4, 6, fam)] for _ in range(n)] for k, (split, fam, n) in held.items()}
    log = open(os.path.join(a.out, "log.txt"), "a")

    def say(*x):
        print(*x, flush=True)
        print(*x, file=log, flush=True)

    def save():
        path = os.path.join(a.out, "state.pt")
        torch.save({"config": model.c, "model": model.state_dict(), "average": average, "probe": probe.state_dict(), "opts": [o.state_dict() for o in opts], "step": step, "labels": labels}, path + ".new")
        os.replace(path + ".new", path)

    stop = []
    for sig in (signal.SIGINT, signal.SIGTERM):
        signal.signal(sig, lambda *_: stop.append(1))
    attention.compile_kernels()
    for l in model.layers:
        l.pre, l.post = torch.compile(l.pre, dynamic=True), torch.compile(l.post, dynamic=True)
    say(time.strftime("%H:%M:%S"), "parameters", sum(p.numel() for p in model.parameters()), vars(a))
    shown = {}
    used, ema, saved, rate = 0.0, None, time.time(), [labels, 0.0]
    clock = time.process_time
    while True:
        t = clock()
        frac = used / (60 * a.minutes)
        if frac >= 1 or stop:
            break
        first = step < a.find + a.bind
        packer.easy = 1 if first else .85 * max(0, 1 - labels / a.easy)
        if packer.K != (2 if first else a.kids):
            packer.K, packer.pool = 2 if first else a.kids, []
        b = packer.batch()
        k = min(1, (abs(step - a.find) + 1) / 30) * min(1, (1 - frac) / max(a.decay, 1e-6))
        finder.param_groups[0]["lr"] = 2 * a.lr * min(1, (step + 1) / 20, 2 * (1 - step / max(1, a.find)))
        for o, lr in zip(opts, base):
            o.param_groups[0]["lr"] = lr * k
        hint = a.hint * max(0, 1 - labels / a.hint_labels) * (1 if first else 2 * (step % 2))
        sc = rows = None
        if labels > a.easy and random.random() < .05:  # self-conditioning, for steps after the first
            with torch.no_grad():
                h, _, _ = model(b, dtype=dtype)
                rows = b["canvas"][:, 0].nonzero()[:, 0]
                lg = model.logits(h[rows]) / random.choice([.4, .8, 1.0])
                sc = torch.softmax(lg, -1) @ model.emb * math.sqrt(model.c["hidden_size"])
        h, bal, point = model(b, sc, rows, look if hint > 0 else None, dtype)
        lp = torch.log_softmax(model.logits(h[b["at"]]), -1)
        ce = -(lp.gather(1, b["lab"]) * b["prob"]).sum(-1)
        loss = (ce * b["w"]).sum() / b["w"].sum() + .01 * bal / len(model.layers)
        if hint > 0:
            shown = looking(point, b)
            if step >= a.find:
                loss = loss + hint * (sum(shown.values()) + probe(point["pool"], b["facts"]))
            else:
                loss = sum(v for n, v in shown.items() if n in FINDERS)
        loss.backward()
        if model.emb.grad is not None:
            model.emb.grad.mul_(free)
        torch.nn.utils.clip_grad_norm_(rest, 1.0)
        for o in [finder] if step < a.find else opts:
            o.step()
        for p in model.parameters():
            p.grad = None
        with torch.no_grad():
            torch._foreach_lerp_(list(average.values()), list(model.state_dict().values()), 1 / a.average if step > a.find + a.bind + a.average else 1 / 20)
        probe.zero_grad()
        full = b["w"] == 1
        x = float(ce[full].mean().detach())
        labels += int(full.sum())
        ema = x if ema is None else .98 * ema + .02 * x
        step += 1
        used += clock() - t
        if step % 25 == 0 or step <= 3:
            say(f"{time.strftime('%H:%M:%S')} step {step} {used / 60:.1f}min loss {x:.3f} ema {ema:.3f} labels {labels} labels/s {(labels - rate[0]) / max(used - rate[1], 1):.0f} {' '.join(f'{n} {float(v.detach()):.2f}' for n, v in shown.items())} fill {b['fill']:.2f} lr {k:.2f}")
            rate = [labels, used]
        if step % a.check == 0:
            model.eval()
            for name, bs in held.items():
                l, s = check(model, bs, dtype)
                say(f"  {name}: loss {l:.3f}", " ".join(f"{k}:{v[0]}" for k, v in sorted(s.items())))
            model.train()
        if time.time() - saved > 60:
            save()
            saved = time.time()
    save()
    for name, bs in held.items():
        l, s = check(model, bs, dtype)
        say(f"final {name}: loss {l:.3f}", json.dumps(s))


if __name__ == "__main__":
    main()
