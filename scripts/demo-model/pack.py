"""Decisions as rows: batches of trees (one shared sheet, K states with one canvas each)."""
import re

import numpy as np
import torch

import lexicon
import model as M
from contract import render_document_first, render_prefix, render_suffix
from encoder import sheet_spans
from sheets import make_sheet


STOP = set("the and for was with that from this but not are his her you they its have were which their been will has had who can out into them then some when what more".split())  # say nothing alone


class Augment:
    """Swaps words for near words (MiniLM), so that a phrase is not learnt by its letters."""

    def __init__(self, path):
        d = torch.load(path)
        near, sim = d["near"].numpy(), d["sim"].float().numpy()
        self.near = {int(i): [int(j) for j, s in zip(near[i][:8], sim[i][:8]) if s > .52] for i in d["words"].tolist()}

    def __call__(self, ids, rng, rate):
        return [rng.choice(self.near[t]) if rng.random() < rate and self.near.get(t) else t for t in ids]


def clues_of(sheet, facts):
    """Which words of the state speak for which label: [(words, question, label)]. A phrase that tells "yes" or "no", or a key
    that a label stands for, counts; a key that none of the labels stands for says nothing."""
    out = list(facts.get("clues", ()))
    for text, attr, key in facts.get("told", ()):
        words = {w for w in re.findall(r"[A-Za-z]{3,}", str(text))} - STOP
        for k, spec in enumerate(sheet.specs):
            if spec["attr"] == attr:
                o = next((i for i, keys in enumerate(spec["groups"]) if key in keys), 1 if spec["type"] == "boolean" and key in ("yes", "no") else None)
                out += [] if o is None else [(words, k, o)]
    return out


class Packer:
    """Endless batches. document_first decisions share nothing and come as trees without a prefix. Trees are pooled and
    taken in order of length to save padding."""

    def __init__(self, enc, rng, split, T=5, K=8, family=None, layout=None, augment=None):
        self.enc, self.rng, self.split, self.T, self.K = enc, rng, split, T, K
        self.family, self.layout, self.augment = family, layout, augment
        self.pool, self.docs = [], []
        self.easy = 0.0  # share of small matching sheets, used early in training

    def decision(self, sheet, tmpl):
        """(prompt ids after the prefix, canvas ids, slots as (offset, label ids, gold, weight, family, type), spans)."""
        r, enc = self.rng, self.enc
        state, gold, facts = sheet.state(r)
        first = sheet.layout == "schema_first"
        u = enc(render_suffix(state) if first else render_document_first(sheet.schema, state, sheet.partial))
        at, clues = {}, []  # token -> {question: label, or None where phrases differ}
        for words, k, o in clues_of(sheet, facts) if first and not sheet.partial else ():
            for t in {enc.tok.token_to_id(p + w) for w in words for p in ("▁", "")} - {None}:
                at.setdefault(t, {})[k] = o if at.get(t, {}).get(k, o) == o else None
        for i, t in enumerate(u if at else ()):
            clues += [(i, k, o) for k, o in at.get(t, {}).items() if o is not None]
        if callable(self.augment) and r.random() < .5:
            u = self.augment(u, r, r.choice([.06, .12, .2])) if first else u[:20] + self.augment(u[20:], r, .06)
        if self.augment and first and r.random() < .25:  # noise words in the state
            u = [r.randrange(600, enc.vocab) if 3 <= i < len(u) - 5 and r.random() < .06 else t for i, t in enumerate(u)]
        canvas, slots, labels = tmpl
        canvas, sup = list(canvas), []
        for s, ls, k in zip(slots, labels, sheet.asked):
            canvas[s] = r.randrange(enc.vocab)
            sup.append((s, ls, gold[k], 1.0, sheet.family, sheet.schema["questions"][k]["type"]))
        if self.augment and r.random() < .06:  # ordinary denoising of the template, for more than one step
            rate = r.choice([.15, .4, .8])
            for i, t in enumerate(list(canvas)):
                if i not in slots and r.random() < rate:
                    canvas[i] = r.randrange(enc.vocab)
                    sup.append((i, [t], [1.0], .1, "template", "template"))
        elif self.augment and r.random() < .06:  # a step after the first: some slots already hold answers
            for s, ls, k in zip(slots, labels, sheet.asked):
                if r.random() < .5:
                    canvas[s] = r.choices(ls, gold[k])[0]
        spans = None
        if not first:
            cut = len(enc("<bos><|turn>user\nState:\n" + state + "\n\n"))
            spans = [((a + cut, z + cut), [(b + cut, y + cut) for b, y in opts]) for (a, z), opts in sheet_spans(u[cut:], sheet.schema, 0)]
        return u, canvas, sup, spans, (sheet.family, facts), clues

    def tree(self):
        r = self.rng
        while True:
            if r.random() < self.easy:
                sheet = lexicon.Lexicon(r, self.split, "schema_first", None, r.choice([2, 2, 3, 3, 4, 5]))
            else:
                sheet = make_sheet(r, self.split, self.family, self.layout)
            sheet.asked = list(range(len(sheet.schema["questions"])))
            sheet.partial = len(sheet.asked) > 1 and r.random() < .03
            if sheet.partial:
                sheet.asked = sorted(r.sample(sheet.asked, r.randint(1, len(sheet.asked) - 1)))
            tmpl = self.enc.template([sheet.schema["questions"][k] for k in sheet.asked])
            if len(tmpl[0]) > 64:
                continue
            if sheet.layout != "schema_first":
                d = self.decision(sheet, tmpl)
                if len(d[0]) < 300 or r.random() < .03:
                    self.docs.append(([], [d]))
                continue
            prefix = self.enc(render_prefix(sheet.schema, sheet.partial))
            if len(prefix) > 420:
                continue
            if callable(self.augment) and sheet.family != "lexicon" and r.random() < .3:
                prefix = prefix[:30] + self.augment(prefix[30:-12], r, .08) + prefix[-12:]
            spans = sheet_spans(prefix, sheet.schema)
            spans = [spans[k] for k in sheet.asked]
            kids = []
            while len(kids) < self.K * 5 // 4:
                d = self.decision(sheet, tmpl)
                if len(d[0]) + len(d[1]) <= 100 or r.random() < .04:
                    kids.append(d[:3] + (spans, d[4], d[5]))
            kids.sort(key=lambda d: len(d[0]))  # states of like length share a tree: less padding
            at = r.randrange(len(kids) - self.K + 1)
            return prefix, kids[at:at + self.K]

    def batch(self):
        if len(self.docs) >= 120:
            self.docs.sort(key=lambda t: len(t[1][0][0]))
            at = self.rng.randrange(0, len(self.docs) - 19)
            trees, self.docs[at:at + 20] = self.docs[at:at + 20], []
            return self.collate(trees, 1)
        while len(self.pool) < 20 * self.T:
            self.pool.append(self.tree())
        self.pool.sort(key=lambda t: len(t[0]) + 4 * max(len(u) + len(c) for u, c, *_ in t[1]))
        at = self.rng.randrange(0, len(self.pool) - self.T + 1)
        trees, self.pool[at:at + self.T] = self.pool[at:at + self.T], []
        return self.collate(trees, self.K)

    def collate(self, trees, K):
        T = len(trees)
        up = lambda n: -(-n // 8) * 8
        Lp = up(max(len(t[0]) for t in trees))
        Lc = up(max(len(u) + len(c) for _, kids in trees for u, c, *_ in kids))
        N = T * Lp + T * K * Lc
        ids, pos, canvas, sup, look = np.zeros(N, np.int64), np.zeros(N, np.int64), np.zeros(N, bool), [], []
        for t, (prefix, kids) in enumerate(trees):
            n = len(prefix)
            ids[t * Lp:t * Lp + n], pos[t * Lp:t * Lp + Lp] = prefix, np.arange(Lp)
            for k, (u, c, s, spans, _, clues) in enumerate(kids):
                at, m = T * Lp + (t * K + k) * Lc, len(u) + len(c)
                ids[at:at + m], pos[at:at + m], canvas[at + len(u):at + m] = u + c, n + np.arange(m), True
                sup += [(at + len(u) + x[0],) + x[1:] for x in s]
                # where the slot should look: its question's block, its label lines, the state
                state = (Lp, Lp + len(u)) if n else (0, spans[0][0][0])
                look += [(*spans[j], state, at - T * Lp - (t * K + k) * Lc + Lp + len(u) + x[0], len(u) + Lp, [Lp + i for i, q, _ in clues if q == j]) if x[3] == 1.0 else None for j, x in enumerate(s)]
        kids = [k for t in trees for k in t[1]]
        rows = np.zeros((T * K, Lc), bool)  # rows of the state, without its turn marks
        for i, (u, c, s, spans, *_) in enumerate(kids):
            rows[i, 3:(len(u) - 5 if Lp else spans[0][0][0])] = True
        tens = lambda v: torch.tensor(v, dtype=torch.long)
        mask = M.masks(tens([len(t[0]) for t in trees]), tens([len(k[0]) for k in kids]), tens([len(k[1]) for k in kids]), K, Lp, Lc)
        L = max(len(x[1]) for x in sup)
        lab, prob = np.zeros((len(sup), L), np.int64), np.zeros((len(sup), L), np.float32)
        for k, x in enumerate(sup):
            lab[k, :len(x[1])], prob[k, :len(x[2])] = x[1], x[2]
        aux = [i for i, s in enumerate(look) if s]
        own = np.zeros((len(aux), Lp + Lc), bool)
        lines, letter, header = [], [], []  # rows of option lines on the sheets; where their label and question id stand
        yes, topic = [], []  # rows of "yes" lines, and where their question is worded
        for t, (prefix, own_kids) in enumerate(trees):
            for (a, z), opts in (own_kids[0][3] if prefix else []):
                colon = next(i for i in range(a + 1, z) if prefix[i] == self.enc.colon)
                for x, y in opts:
                    l = next((i for i in range(x + 1, min(x + 4, y)) if prefix[i] in self.enc.label_ids), x + 1)
                    for row in range(min(l + 2, y - 1), y):
                        if prefix[l] == self.enc.label["yes"] and opts[0][0] - 1 > colon + 1:
                            yes.append(t * Lp + row)
                            topic.append((colon + 1, opts[0][0] - 1))
                        lines.append(t * Lp + row)
                        letter.append((l, l + 1))
                        header.append((a + 1, colon))
        block, option, state, before = np.zeros((len(aux), Lp + Lc), bool), np.zeros((len(aux), Lp + Lc), np.int64), np.zeros((len(aux), Lp + Lc), bool), np.zeros((len(aux), Lp + Lc), bool)
        words, match = [], []  # state words of matching decisions, and the option lines they speak for
        for i, (u, c, s, spans, _, clues) in enumerate(kids):
            for row, q, o in self.rng.sample(clues, min(len(clues), 6)):
                words.append(T * Lp + i * Lc + row)
                match.append(spans[q][1][o])
        canvas_rows = {}

        def ids_of(i):
            """Ids of the child that holds supervised slot i, behind Lp blanks."""
            c = (sup[i][0] - T * Lp) // Lc
            if c not in canvas_rows:
                canvas_rows[c] = [0] * Lp + ids[T * Lp + c * Lc:T * Lp + (c + 1) * Lc].tolist()
            return canvas_rows[c]

        for r, i in enumerate(aux):
            (a, z), opts, (s0, s1), slot, first, told = look[i]
            block[r, a:z], before[r, slot - 1] = True, True
            state[r, told or list(range(s0 + 3 * (s0 > 0), s1))] = True  # matching decisions know which words matter
            row = ids_of(i)
            j = slot - 2
            while j > first and row[j - 1] != 107:
                j -= 1
            own[r, j:slot - 1] = True
            for l, (x, y) in enumerate(opts):
                option[r, x:y] = l + 1
        spread = lambda v, n=Lp: torch.from_numpy(np.stack([(np.arange(n) >= a) & (np.arange(n) < z) for a, z in v])) if v else torch.zeros(0, n, dtype=torch.bool)
        return dict(words=tens(words), match=spread(match, Lp + Lc), rows=torch.from_numpy(rows), facts=[k[4] for k in kids], own=torch.from_numpy(own), before=torch.from_numpy(before), lines=tens(lines), letter=spread(letter), header=spread(header), yes=tens(yes), topic=spread(topic), aux=tens(aux), block=torch.from_numpy(block), option=torch.from_numpy(option), state=torch.from_numpy(state), ids=torch.from_numpy(ids), pos=torch.from_numpy(pos), canvas=torch.from_numpy(canvas)[:, None], mask=mask,
                    shape=(T, Lp, K, Lc), at=tens([x[0] for x in sup]), lab=torch.from_numpy(lab), prob=torch.from_numpy(prob), n=tens([len(x[1]) for x in sup]), w=torch.tensor([x[3] for x in sup]), fam=[x[4] for x in sup], typ=[x[5] for x in sup],
                    fill=(sum(len(t[0]) for t in trees) + sum(len(k[0]) + len(k[1]) for k in kids)) / N)
