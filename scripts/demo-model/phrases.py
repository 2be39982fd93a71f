"""Phrases of the banks by split, filled and joined to texts. The worlds (worlds.py, generic.py) draw from here."""
import json
import re

import banks as B
import banks_more  # noqa: F401  (extends the banks)
import banks_support  # noqa: F401
import banks_code  # noqa: F401
import banks_security  # noqa: F401
import banks_wide  # noqa: F401

SLOT = re.compile(r"\{(\w+)\}")
_SPLIT = {}


def part(bank, split):
    """The phrases of a split. Every eighth phrase is held out: `train` never draws it. The held-out ones (`held`) are dealt
    in turn to `test` and `calibration`; `unseen` (whole topics held out) draws the held-out phrases for all the rest."""
    key = id(bank)
    if key not in _SPLIT:
        n = len(bank)
        held = [i for i in range(n) if i % 8 == 5] or ([n - 1] if n >= 4 else [])
        out = [bank[i] for i in held] or list(bank)
        halves = (out[::2], out[1::2]) if len(out) > 1 else (out, out)
        _SPLIT[key] = (bank, {"train": [b for i, b in enumerate(bank) if i not in held], "held": out, "unseen": out, "test": halves[0], "calibration": halves[1]})
    return _SPLIT[key][1][split]


def fill(rng, text):
    text = SLOT.sub(lambda m: rng.choice(B.FILL[m.group(1)]), text)
    return text.replace("{{", "{").replace("}}", "}").replace("\\n", "\n")


def say(rng, bank, split):
    return fill(rng, rng.choice(part(bank, split)))


def typo(rng, s):
    for _ in range(rng.randint(1, 2)):
        i = rng.randrange(max(1, len(s) - 2))
        if not (s[i].isalpha() and s[i + 1:i + 2].isalpha()):
            continue
        k = rng.random()
        s = s[:i] + (s[i + 1] + s[i] if k < .4 else "" if k < .7 else s[i] * 2) + s[i + (2 if k < .4 else 1):]
    return s


def join(rng, sents, shuffle=False):
    sents = [s for s in sents if s]
    if shuffle:
        rng.shuffle(sents)
    style = rng.random()
    out = []
    for s in sents:
        q = s.split(" ")[0].lower() in ("how", "what", "where", "which", "who", "is", "can", "could", "do", "does", "why", "when", "has")
        end = "" if s[-1] in ".!?," else ("?" if q else ".")
        if style < .8:
            s = s[0].upper() + s[1:]
        if style > .93:
            end = "," if end == "." else end
        out.append(s + end)
    text = " ".join(out)
    if rng.random() < .15:
        text = typo(rng, text)
    r = rng.random()
    return text.lower() if r < .06 else text


def as_json(rng, key, text, extra=None, lead=False):
    """The state as a JSON object, compact or not, as templates send it."""
    obj = {key: text, **(extra or {})}
    if lead:
        obj = dict([rng.choice([("id", rng.randint(1, 9999)), ("channel", rng.choice(["mail", "chat", "web", "phone"])), ("lang", "en"), ("source", "form")])] + list(obj.items()))
    return json.dumps(obj, ensure_ascii=False, separators=(",", ":") if rng.random() < .5 else None)


def norm(d):
    t = sum(d.values())
    return {k: v / t for k, v in d.items()}


def yn(p):
    return {"yes": p, "no": 1 - p}
