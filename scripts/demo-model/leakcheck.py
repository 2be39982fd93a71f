"""Proves that held-out phrases share no sentence with training. Fails (exit 1) and prints every clash.

  python leakcheck.py --tokens DIR [--items eval.jsonl] [--draws 20000] [--extra handwritten.jsonl]
1. Bank by bank: no held-out phrase equals a training phrase, nor can a training phrase be filled to give a filled
   held-out phrase (compared as patterns, case and punctuation folded).
2. Many training states are drawn; no sentence of an evaluation state that comes from a held-out phrase occurs in them.
3. No hand-written item shares a sentence with a bank or a drawn training state.
"""
import argparse
import json
import random
import re
import sys

import banks as B
import banks_generic as G
import lexicon
import shipped
from phrases import SLOT, part
from sheets import FAMILIES, make_sheet


def fold(text):
    return re.sub(r"[^a-z0-9{} ]+", " ", text.lower().replace("\\n", " ")).split()


def phrase(x):
    return x if isinstance(x, str) else x[0] if isinstance(x, tuple) else None


def all_banks():
    """(name, list) of every bank that is split by phrase."""
    def walk(name, x):
        if isinstance(x, dict):
            for k, v in x.items():
                yield from walk(f"{name}.{k}", v)
        elif isinstance(x, list) and x and phrase(x[0]) is not None:
            yield name, x
        elif isinstance(x, tuple):
            for i, v in enumerate(x):
                yield from walk(f"{name}.{i}", v)
    for mod in (B, G):
        for name, value in vars(mod).items():
            if name.isupper() and name not in ("FILL", "NOUN", "AGENT_LAST", "FACT_FILL"):
                yield from walk(name, value)


def pattern(text):
    """Regular expression for all fillings of a phrase, folded."""
    text = text.replace("{{", "").replace("}}", "")
    parts = re.split(r"\{(\w+)\}", text)
    alternatives = lambda slot: "(?:" + "|".join(sorted({re.escape(" ".join(fold(x))) for x in B.FILL.get(slot, [])}, key=len, reverse=True)) + ")"
    return re.compile(" ?".join(" ".join(map(re.escape, fold(p))) if k % 2 == 0 else alternatives(p) for k, p in enumerate(parts)) + "$")


def banks_clash():
    bad, held_total = [], 0
    for name, bank in all_banks():
        train, held = ([phrase(x) for x in part(bank, s)] for s in ("train", "held"))
        if len(bank) < 4:
            continue
        held_total += len(held)
        flat = {" ".join(fold(t)) for t in train}
        free = [pattern(t) for t in train if SLOT.search(t) and len(fold(SLOT.sub("", t))) >= 2]
        for h in held:
            f = " ".join(fold(h))
            if f in flat:
                bad.append((name, h, "same phrase"))
            elif not SLOT.search(h):
                bad += [(name, h, p.pattern) for p in free if p.match(f)]
    return bad, held_total


def sentences(text):
    if text.startswith("{"):
        try:
            text = " . ".join(str(v) for v in json.loads(text).values())
        except ValueError:
            pass
    return {" ".join(fold(s)) for s in re.split(r"[.!?\n]+", text) if len(fold(s)) >= 3}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokens", required=True)
    ap.add_argument("--items")
    ap.add_argument("--extra")
    ap.add_argument("--draws", type=int, default=20000)
    a = ap.parse_args()
    lexicon.PATH = a.tokens
    bad, held = banks_clash()
    rng, seen = random.Random(1), set()
    fams = [f for f in FAMILIES if f != "lexicon"]
    for _ in range(a.draws // 4):
        s = make_sheet(rng, "train", rng.choice(fams))
        for _ in range(4):
            seen |= sentences(s.state(rng)[0])
    print(f"{held} held-out phrases; {len(seen)} different training sentences drawn")
    # sentences without a split (fillers, file names, openings) may recur; only those of held-out phrases must not
    if a.items:
        pats = [pattern(phrase(x)) for name, bank in all_banks() if len(bank) >= 4 for x in part(bank, "held") if len(fold(SLOT.sub("", phrase(x)))) >= 2]
        for line in open(a.items, encoding="utf8"):
            x = json.loads(line)
            if x["family"] == "lexicon":
                continue
            for s in sentences(x["state"]) & seen:
                if any(p.match(s) for p in pats):
                    bad.append((x["id"], s, "drawn in training"))
    if a.extra:
        whole = {" ".join(fold(phrase(x))) for _, bank in all_banks() for x in bank}
        for x in shipped.handwritten(a.extra):
            bad += [(x["id"], s, "hand-written sentence in the banks or in training") for s in sentences(x["state"]) if s in seen or s in whole]
    for b in bad:
        print("clash:", *b, sep=" | ")
    print("clashes:", len(bad))
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
