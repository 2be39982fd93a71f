"""The evaluation set, and a look at training decisions.

  python generate.py --tokens DIR                     shows a few training decisions
  python generate.py --tokens DIR --out eval.jsonl    writes the evaluation set
"""
import argparse
import json
import random

import lexicon
from contract import names, render_sheet
from sheets import FAMILIES, SHIPPED, make_sheet


def evaluation(seed=4242):
    """The items of eval.jsonl: held-out phrases only. group says what the sheet is, part whether the item may fit temperatures."""
    rng, n = random.Random(seed), 0
    plan = [("shipped", f, 110 if f in ("support", "code", "security") else 36, dict(shipped=True, layout="schema_first")) for f in SHIPPED]
    plan += [("varied", f, 36, dict(shipped=False)) for f in FAMILIES]
    plan += [("document_first", f, 24, dict(shipped=True, layout="document_first")) for f in ("support", "code", "security")]
    plan += [("isolated", f, 24, dict(layout="document_first", lone=True)) for f in ("support", "code", "security", "generic")]
    plan += [("unseen_topics", "generic", 120, dict(layout="schema_first"))]
    for group, family, count, kw in plan:
        for k in range(count):
            part_ = "calibration" if k % 3 == 2 else "test"
            split = "unseen" if group == "unseen_topics" else part_
            while True:
                s = make_sheet(rng, split, family, **kw)
                if group != "unseen_topics" or any(q["type"] == "choice" and sp["attr"] == "topic" for q, sp in zip(s.schema["questions"], s.specs)):
                    break
            state, gold, _ = s.state(rng)
            qs = s.schema["questions"]
            yield {"id": f"{group}-{family}-{n:04d}", "group": group, "part": part_, "family": family, "schema": s.schema, "state": state,
                   "gold": {q["id"]: {l: round(p, 4) for l, p in zip(names(q), g)} for q, g in zip(qs, gold)},
                   "expected": {q["id"]: names(q)[max(range(len(g)), key=g.__getitem__)] for q, g in zip(qs, gold)},
                   "clear": {q["id"]: max(g) >= .7 for q, g in zip(qs, gold)}}
            n += 1


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--tokens", required=True, help="folder with tokenizer.json and words.pt")
    ap.add_argument("--out", help="write the evaluation set there (eval.jsonl); without it print a few training decisions")
    ap.add_argument("--seed", type=int, default=4242)
    a = ap.parse_args()
    lexicon.PATH = a.tokens
    if a.out:
        with open(a.out, "w", encoding="utf8") as f:
            for item in evaluation(a.seed):
                f.write(json.dumps(item, ensure_ascii=False) + "\n")
        return
    r = random.Random(a.seed)
    for fam in FAMILIES:
        s = make_sheet(r, "train", fam)
        print("=" * 20, fam, s.layout)
        print(render_sheet(s.schema))
        for _ in range(2):
            state, gold, _ = s.state(r)
            print("STATE", state, "\nGOLD", [[round(x, 2) for x in g] for g in gold])


if __name__ == "__main__":
    main()
