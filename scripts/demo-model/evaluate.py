"""Measures an exported demo model on held-out items and prints the targets with what is reached.

  python evaluate.py DIR [--items DIR/eval.jsonl] [--calibration DIR/calibration.json] [--extra handwritten.jsonl] [--quick]
Items: group, part, family, schema, state, gold, expected (generate.py --out). Hand-written items name a template (see
shipped.py) and have no gold; where no answer is expected the item counts as ambiguous. f32 compute of the stored weights, one denoise step.
"""
import argparse
import copy
import json
import math
import os
import random

import torch

import decide as D
from contract import labels_of, names
import shipped


def top(v):
    return max(range(len(v)), key=v.__getitem__)


def entropy(p):
    return -sum(x * math.log(max(x, 1e-12)) for x in p)


def mean(v):
    return sum(v) / max(1, len(v))


class Answer:
    """One answered question: probabilities p, gold distribution, index of the right answer."""

    def __init__(self, item, q, logits, mass, temp):
        answers = names(q)
        self.item, self.q, self.mass = item, q, mass
        self.p = torch.softmax(logits / temp, -1).tolist()
        gold, right = item.get("gold", {}).get(q["id"]), item["expected"][q["id"]]
        self.right = None if right is None else answers.index(right)
        self.gold = [gold[n] for n in answers] if gold else [1 / len(answers) if right is None else float(n == right) for n in answers]
        self.ok, self.clear = top(self.p) == self.right, max(self.gold) >= .7


def run(m, enc, items, temps, rng, steps=1):
    out = []
    for x in items:
        lg, mass = D.decide(m, enc, x["schema"], x["state"], rng, steps)
        out += [Answer(x, q, l, ms, temps.get(q["type"], 1.0)) for q, l, ms in zip(x["schema"]["questions"], lg, mass)]
    return out


def row(title, answers, table):
    """Accuracy on clear items, share within one level for scores, the share of the most frequent answer, KL(gold, model)."""
    clear = [a for a in answers if a.clear]
    if not clear:
        return None
    acc = mean([a.ok for a in clear])
    near = mean([abs(top(a.p) - a.right) <= 1 for a in clear if a.q["type"] == "score"]) if clear[0].q["type"] == "score" else None
    count = {}
    for a in clear:
        k = names(a.q)[a.right]
        count[k] = count.get(k, 0) + 1
    kl = mean([sum(x * math.log(max(x, 1e-9) / max(y, 1e-9)) for x, y in zip(a.gold, a.p)) for a in answers])
    table[title] = {"clear": len(clear), "accuracy": round(acc, 3), "majority": round(max(count.values()) / len(clear), 3), "kl": round(kl, 3)}
    if near is not None:
        table[title]["within_one"] = round(near, 3)
    print(f"| {title} | {len(clear)} | {acc:.3f} | {'' if near is None else f'{near:.3f}'} | {max(count.values()) / len(clear):.3f} | {kl:.3f} |", flush=True)
    return table[title]


def ece(answers, bins=10):
    """Expected calibration error of the winner's probability; right counts by the gold probability of that answer."""
    box = [[] for _ in range(bins)]
    for a in answers:
        c = max(a.p)
        box[min(bins - 1, int(c * bins))].append((c, a.gold[top(a.p)]))
    return sum(abs(sum(c - r for c, r in b)) for b in box) / max(1, len(answers))


def flips(m, enc, items, rng, limit):
    """Share of rotations of a choice's options that change the chosen option (same noise in the slots)."""
    changed = total = 0
    for x in items:
        for i, q in enumerate(x["schema"]["questions"]):
            if q["type"] != "choice" or total >= limit:
                continue
            n = len(q["options"])
            seed = rng.randrange(1 << 30)
            base = top(D.decide(m, enc, x["schema"], x["state"], random.Random(seed))[0][i].tolist())
            for by in range(1, min(n, 4)):
                other = copy.deepcopy(x["schema"])
                other["questions"][i]["options"] = q["options"][by:] + q["options"][:by]
                total += 1
                changed += (top(D.decide(m, enc, other, x["state"], random.Random(seed))[0][i].tolist()) + by) % n != base
    return changed / max(1, total), total


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("dir")
    ap.add_argument("--items")
    ap.add_argument("--calibration")
    ap.add_argument("--extra")
    ap.add_argument("--quick", action="store_true", help="a third of the items, no rotations, no further steps")
    ap.add_argument("--json", help="write the figures there")
    a = ap.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    m, enc = D.load(a.dir)
    items = [json.loads(l) for l in open(a.items or os.path.join(a.dir, "eval.jsonl"), encoding="utf8")]
    items = items[::3] if a.quick else items
    able = [x for x in items if all(l in enc.label for q in x["schema"]["questions"] for l in labels_of(q))]
    if len(able) < len(items):
        print(f"left out: {len(items) - len(able)} items with more options than the tokenizer has labels")
    items = able
    cal = a.calibration or os.path.join(a.dir, "calibration.json")
    temps = json.load(open(cal))["temperatures"] if os.path.exists(cal) else {}
    rng, table, fig = random.Random(5), {}, {"temperatures": temps}
    print("| question | clear items | accuracy | within one level | majority | mean KL |\n|---|---|---|---|---|---|")
    answers = run(m, enc, items, temps, rng)
    of = lambda **kw: [x for x in answers if all(x.item[k] == v for k, v in kw.items())]
    for fam in ("support", "code", "security", "injection", "router", "contract"):
        here = of(group="shipped", family=fam)
        for qid in dict.fromkeys(x.q["id"] for x in here):
            row(f"shipped {fam}: {qid}", [x for x in here if x.q["id"] == qid], table)
    for group in ("varied", "document_first", "isolated", "unseen_topics"):
        for typ in ("boolean", "choice", "score"):
            row(f"{group}: {typ}", [x for x in of(group=group) if x.q["type"] == typ], table)
    row("lexicon: choice", [x for x in of(family="lexicon") if x.q["type"] == "choice"], table)
    row("unseen topics: topic", [x for x in of(group="unseen_topics") if x.q["type"] == "choice" and x.q["id"] in ("topic", "subject", "theme", "category", "area", "about")], table)
    core = [f"shipped {f}: {q}" for f, qs in (("support", ("urgent", "team")), ("code", ("approved", "category")), ("security", ("data_compromise", "action"))) for q in qs]
    scores = [f"shipped {f}: {q}" for f, q in (("support", "sentiment"), ("code", "risk_level"), ("security", "severity"))]
    test = [x for x in answers if x.item["part"] == "test"]
    hc, ha = [entropy(x.p) for x in answers if max(x.gold) >= .9], [entropy(x.p) for x in answers if not x.clear]
    fig.update(ece=ece(test), entropy_clear=mean(hc), entropy_ambiguous=mean(ha), mean_confidence=mean([max(x.p) for x in answers]), mean_accuracy=mean([x.ok for x in answers]), label_mass=mean([x.mass for x in answers]))
    conf = sorted(((max(x.p), x.ok) for x in answers), reverse=True)
    fig["selective"] = {f"{s:.0%}": mean([o for _, o in conf[:int(len(conf) * s)]]) for s in (1, .8, .5)}
    if not a.quick:
        rot = [x for x in items if x["group"] in ("shipped", "varied", "unseen_topics")]
        rng.shuffle(rot)
        fig["flip_rate"], fig["rotations"] = flips(m, enc, rot, rng, 600)
        base = [x for x in items if x["group"] == "shipped"][::6]
        for steps in (1, 2, 4):
            row(f"{steps} denoise steps", run(m, enc, base, temps, rng, steps), table)
    if a.extra:
        extra = run(m, enc, shipped.handwritten(a.extra), temps, rng)
        for fam in ("support", "code", "security"):
            here = [x for x in extra if x.item["family"] == fam]
            for qid in dict.fromkeys(x.q["id"] for x in here):
                row(f"hand-written {fam}: {qid}", [x for x in here if x.q["id"] == qid], table)
        print(f"\nhand-written, {len(extra)} answers: entropy where no answer is expected {mean([entropy(x.p) for x in extra if not x.clear]):.3f}, elsewhere {mean([entropy(x.p) for x in extra if x.clear]):.3f}; accuracy {mean([x.ok for x in extra if x.clear]):.3f}")
    print("\n| target | wanted | reached |\n|---|---|---|")
    worst = lambda keys, what: ", ".join(f"{k.split(' ', 1)[1]} {table[k][what]:.2f}" for k in keys if k in table)
    print(f"| booleans and choices of the three policies | >= 0.90 | mean {mean([table[k]['accuracy'] for k in core]):.3f} ({worst(core, 'accuracy')}) |")
    print(f"| scores within one level | >= 0.80 | {worst(scores, 'within_one')} |")
    print(f"| topic routing, unseen topics | >= 0.75 | {table.get('unseen topics: topic', {}).get('accuracy', float('nan')):.3f} |")
    print(f"| answers that flip when options rotate | <= 0.10 | {fig.get('flip_rate', float('nan')):.3f} of {fig.get('rotations', 0)} |")
    print(f"| entropy, ambiguous over clear | >= 3 | {fig['entropy_ambiguous'] / max(1e-9, fig['entropy_clear']):.2f} ({fig['entropy_ambiguous']:.3f} over {fig['entropy_clear']:.3f} nats) |")
    print(f"| ECE after calibration | <= 0.08 | {fig['ece']:.3f} |")
    print(f"\nmean confidence {fig['mean_confidence']:.3f}, accuracy {fig['mean_accuracy']:.3f}, label mass {fig['label_mass']:.3f}; accuracy of the most confident: " + ", ".join(f"{k} {v:.3f}" for k, v in fig["selective"].items()))
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"rows": table, "figures": fig}, f, indent=1)
            f.write("\n")


if __name__ == "__main__":
    main()
