"""Word-matching decisions: options are words (with or without a description), the state holds words near one of them.

Meaning comes from MiniLM's word vectors (words.pt of embed.py), the sentences are frames written for this model. It
teaches the model to compare a state with options over the whole vocabulary instead of learning options by heart.
"""
import functools
import re

import numpy as np
import torch

import banks as B
import banks_generic as G
import words
from phrases import as_json, join

FRAMES = B.lines("""
the {w} was next to the {w}
we talked about {w} and {w} all day
she asked for {w}
I think of {w} when I hear {w}
there was {w} everywhere
he told us about the {w}
they brought {w}, {w} and {w}
my notes say {w} and {w}
have you ever seen such {w}
it has to do with {w}
{w} came up again
the first thing was {w}, the second was {w}
we read a long story about {w} and {w}
nobody mentioned {w} before
a lot of {w}, and some {w}
please tell me more about {w}
it reminds me of {w} or {w}
the report speaks of {w}
everything here is {w}
I have a question about {w} and {w}
yesterday it was all {w} and {w}
what do you know about {w}
the picture shows {w} beside {w}
some call it {w}, others {w}
{w} and {w} again
our {w} is not like your {w}
the talk was about {w}
keywords: {w}, {w}, {w}
{w}
{w}, {w}
{w}, {w}, {w}
in short: {w} and {w}
is this {w} or {w}
you will find {w} inside
every day brings more {w}
the older one spoke of {w}, the younger one of {w}
they sell {w} and {w}
after the {w} came the {w}
it smells of {w}
we need {w} as well as {w}
""")
ASK = ["Topic of the text", "What is the text about?", "Which one fits best?", "Closest meaning", "Choose the best match", "What does it deal with?", "Which word describes it?", "Subject", "Select the category", "Which group does it belong to?",
       "Main theme", "Pick the right label", "Where does it belong?", "What is meant?", "Best fitting option", "Intent of the message", "Kind of content"]
IDS = ["topic", "match", "category", "label", "group", "about", "kind", "subject", "theme", "choice", "class", "route", "intent", "meaning", "type", "area", "pick", "best"]
YES = ["Is the text about {}?", "Does it concern {}?", "Is {} the subject?", "Does {} fit?", "Related to {}?", "Is it close to {}?", "Does the text deal with {}?", "{}?"]
YES_IDS = ["about_it", "fits", "related", "is_match", "on_topic", "relevant", "belongs", "hit", "same_topic", "flag"]


@functools.cache
def table(path):
    """words, unit vectors [n, 768] f32, near [n, 32] (indices into words), sim [n, 32]; only words good for options."""
    from tokenizers import Tokenizer
    d, tok = torch.load(path + "/words.pt"), Tokenizer.from_file(path + "/tokenizer.json")
    ids = d["words"].tolist()
    text = [tok.id_to_token(i)[1:] for i in ids]
    at = np.full(d["table"].shape[0], -1)
    at[ids] = np.arange(len(ids))
    near, sim = at[d["near"][ids].numpy()], d["sim"][ids].float().numpy()
    return text, d["unit"].float().numpy(), near, sim


@functools.cache
def anchors(path, split):
    """Words with at least ten near words; the names of held-out topics never serve as options in training."""
    text, _, _, sim = table(path)
    held = {w for t in G.TOPICS if t["held_topic"] for n in t["names"] for w in re.findall(r"[a-z]+", n)}
    skip = set("the and for was with that from this but not are his her you they its have were which their been will has had who one two can out into them then some what when more other".split())
    return [i for i, t in enumerate(text) if sim[i, 9] > .42 and len(t) > 2 and t not in skip and not (split == "train" and t in held)]


PATH = None


def unique(names):
    """Option names must differ."""
    seen = set()
    for i, name in enumerate(names):
        names[i] = name + "_2" if name in seen else name
        seen.add(names[i])
    return names


class Lexicon:
    """Stands where a sheets.Sheet stands: family, layout, schema, specs and state(rng). A state speaks of one to three
    subjects; every choice question has the subject's word among its options, booleans name a subject or something else."""
    family = "lexicon"

    def __init__(self, rng, split, layout, n=None, size=None, subjects=None):
        self.layout, self.split = layout, split
        self.text, self.unit, self.near, self.sim = table(PATH)
        pool = anchors(PATH, split)
        subjects = subjects or (1 if n == 1 else rng.choices([1, 2, 3], [.35, .4, .25])[0])
        self.named = {}  # options that booleans name -> these questions
        self.pools, qs = [], []  # candidate subjects of each slot of the state; (question, vectors of its answers)
        for _ in range(subjects):
            k = size or rng.choices([2, 3, 4, 5, 6, 8, 12, 20, 26, 40, 60], [20, 22, 20, 12, 8, 6, 4, 2, 1.5, .7, .3] if subjects == 1 else [24, 26, 20, 10, 4, 2, 0, 0, 0, 0, 0])[0]
            chosen = [rng.choice(pool)]
            while len(chosen) < k:
                c = int(self.near[rng.choice(chosen), rng.randrange(18, 32)]) if rng.random() < .12 else rng.choice(pool)
                if c >= 0 and c not in chosen:
                    chosen.append(c)
            rng.shuffle(chosen)
            q, vec, options = self._choice(rng, chosen)
            self.pools.append((options, q))
            if n is None and rng.random() < .12 and k <= 12:
                pass  # the subject is there, but no choice asks for it
            else:
                qs.append((q, vec))
            many = 0 if k > 12 or n == 1 else rng.choices([0, 1, 2, 3], [.15, .3, .3, .25])[0]
            for _ in range(many if n is None else 0):
                qs.append(self._yes_no(rng, rng.choice(options)))
        if not qs or n == 1 and rng.random() < .3:
            qs = [self._yes_no(rng, rng.choice(self.pools[0][0]))]
        rng.shuffle(qs)
        qs = qs[:8]
        self.schema = {"questions": [q for q, _ in qs]}
        self.vec = [v for _, v in qs]
        if rng.random() < .12:
            self.schema["instructions"] = rng.choice(["Sort short texts.", "Label each note.", "Find the best option.", "Read the text and decide."])
        if layout != "schema_first":
            self.schema["layout"] = layout
        used, neutral = set(), rng.random() < .25
        for i, q in enumerate(self.schema["questions"]):
            q["id"] = f"q{i + 1}" if neutral else q["id"]
            while q["id"] in used:
                q["id"] += rng.choice(["_2", "_b", "2"])
            used.add(q["id"])
        self.specs = [{"attr": "lexicon", "type": q["type"]} for q in self.schema["questions"]]

    def _choice(self, rng, chosen):
        """A choice over the words `chosen`; also (word, words of its option, option name) for each."""
        k, options = len(chosen), []
        described = rng.random() < (.45 if k <= 8 else .1)
        for c in chosen:
            close = [int(j) for j, s in zip(self.near[c][:12], self.sim[c][:12]) if j >= 0 and s > .4]
            rng.shuffle(close)
            name = [c] if rng.random() < .75 or not close else [close.pop()]
            if rng.random() < .12 and close:
                name.append(close.pop())
            desc = [close.pop() for _ in range(min(len(close), rng.randint(1, 3)))] if described else []
            options.append((c, name, desc))
        w = lambda i: self.text[i]
        names = [rng.choice(["_", " "]).join(w(i) for i in name) for _, name, _ in options]
        names = unique([n.capitalize() for n in names] if rng.random() < .1 else names)
        opts = [{"name": n, "description": rng.choice([", ", " and ", " or "]).join(w(i) for i in d)} if d else n for n, (_, _, d) in zip(names, options)]
        vec = np.stack([self.unit[name + desc].mean(0) for _, name, desc in options])
        q = {"id": rng.choice(IDS), "type": "choice", "instructions": rng.choice(ASK), "options": opts}
        return q, vec / np.linalg.norm(vec, axis=1, keepdims=True), [(c, name + desc, n) for (c, name, desc), n in zip(options, names)]

    def _yes_no(self, rng, option):
        c, used, name = option
        q = {"id": rng.choice(YES_IDS), "type": "boolean", "instructions": rng.choice(YES).format(name.replace("_", " "))}
        if len(used) > 1 and rng.random() < .4:
            q["criteria"] = {"true": " ".join(self.text[j] for j in used[1:]), "false": rng.choice(["anything else", "other things", "not this"])}
        self.named.setdefault(name, []).append(q)
        v = self.unit[used].mean(0)
        return q, v / np.linalg.norm(v)

    def state(self, rng):
        groups, sents, clues = [], [], []
        order = [id(q) for q in self.schema["questions"]]
        for options, asked in self.pools:
            named = [o for o in options if o[2] in self.named]
            pick = rng.choice(named if named and rng.random() < .35 else options)
            c, used, _ = pick
            close = [int(j) for j, s in zip(self.near[c], self.sim[c]) if j >= 0 and s > .33 and int(j) not in used]
            close = close[:rng.choice([8, 14, 28])] or [c]
            if rng.random() < .2:
                close = close + [used[0]] * max(1, len(close) // 3)
            target, got = rng.choice([1, 2, 3, 3, 4, 5] if len(self.pools) == 1 else [1, 2, 2, 3]), []
            while len(got) < target:
                f = rng.choice(FRAMES)
                m = f.count("{w}")
                if m > target - len(got) + 1:
                    continue
                picks = [rng.choice(close) for _ in range(m)]
                got += picks
                it = iter(picks)
                sents.append(re.sub(r"\{w\}", lambda _: self.text[next(it)], f))
            if id(asked) in order:  # which words speak for which option, for the looking losses
                clues.append(({self.text[j] for j in got}, order.index(id(asked)), options.index(pick)))
            clues += [({self.text[j] for j in got}, order.index(id(q)), 0) for q in self.named.get(pick[2], ()) if id(q) in order]
            v = self.unit[got].mean(0)
            groups.append(v / np.linalg.norm(v))
        if rng.random() < .3:
            sents.append(rng.choice(G.FACT_FILL))
        rng.shuffle(sents)
        v, gold = np.stack(groups), []
        for vec in self.vec:
            s = (vec @ v.T).max(-1)
            if vec.ndim == 1:  # yes or no: near the typical likeness of a subject and its own words, or far from it
                p = float(1 / (1 + np.exp(-(s - .47) / .04)))
                gold.append([.02 + .96 * p, .98 - .96 * p])
            else:
                p = np.exp((s - s.max()) / .07)
                gold.append((p / p.sum()).tolist())
        text = join(rng, sents)
        if rng.random() < .3:
            text = as_json(rng, rng.choice(["text", "message", "note", "input", "utterance", "document"]), text)
        return text, gold, {"clues": clues}
