"""Question sheets: `make_sheet(rng, split)` draws a sheet of one family; `sheet.state(rng)` draws a state for it, with a gold
distribution for every question. Called by pack.py (training), generate.py (evaluation set) and leakcheck.py."""
import copy
import json

import generic
import lexicon
import policies
import shipped as templates
import worlds

FAMILIES = {"support": (policies.SUPPORT, worlds.support, .2), "code": (policies.CODE, worlds.code, .14), "security": (policies.SECURITY, worlds.security, .14), "injection": (policies.INJECTION, worlds.injection, .06),
            "router": (policies.ROUTER, worlds.router, .04), "contract": (policies.CONTRACT, worlds.contract, .05), "generic": (None, generic.world, .15), "lexicon": (None, None, .22)}
SHIPPED = {"support": ["urgent", "team", "sentiment"], "code": ["approved", "category", "risk_level"], "security": ["data_compromise", "action", "severity"], "injection": ["injection"],
           "router": ["tool"], "contract": ["auto_renews", "liability_cap", "legal_risk"]}


class Sheet:
    def __init__(self, family, schema, specs, keys, need, split, layout):
        self.family, self.schema, self.specs, self.keys = family, schema, specs, keys
        self.need, self.split, self.layout = need, split, layout
        self.state_mode = None

    def state(self, rng):
        """(state text, gold distributions, facts)."""
        for _ in range(50):
            text, facts = FAMILIES[self.family][1](rng, self.split, self.need)
            gold, ok = [], True
            for q in self.specs:
                d = facts[q["attr"]]
                if q["type"] == "boolean":
                    p = sum(d[k] for k in q["groups"][0])
                    gold.append([p, 1 - p])
                    continue
                w = [sum(d.get(k, 0) for k in g) for g in q["groups"]]
                if q.get("rest") is not None:
                    w[q["rest"]] = max(0.0, 1 - sum(w))
                if sum(w) < .75:
                    ok = False
                    break
                gold.append([x / sum(w) for x in w])
            if ok:
                return self.wrap(rng, text), gold, facts
        raise RuntimeError("no state fits " + json.dumps(self.schema))

    def wrap(self, rng, text):
        extra = {}
        if isinstance(text, tuple):
            text, extra = text
        mode = self.state_mode if self.state_mode is not None else rng.random()
        if mode > .62 and not (extra and rng.random() < .7):
            return text
        obj = {self.keys[0] if self.state_mode is not None or rng.random() < .5 else rng.choice(self.keys): text}
        obj.update(extra)
        if mode < .08:
            obj = dict([rng.choice([("id", rng.randint(1, 9999)), ("channel", rng.choice(["mail", "chat", "web", "phone"])), ("lang", "en"), ("source", "form")])] + list(obj.items()))
        return json.dumps(obj, ensure_ascii=False, separators=(",", ":") if mode > .52 else None)


def build_question(rng, q, qid, canon):
    """One question of the schema and the keys behind each of its labels."""
    out = {"id": qid, "type": q["type"], "instructions": rng.choice(q["instr"])}
    spec = {"attr": q["attr"], "type": q["type"]}
    if q["type"] == "boolean":
        if q["crit"] and rng.random() < .5:
            t, f = rng.choice(q["crit"])
            out["criteria"] = {"true": t, "false": f}
        spec["groups"] = [q["keys"]]
    elif q["type"] == "choice":
        keys = list(q["canon"]) if canon else list(q["options"])
        if not canon and len(keys) > 4 and rng.random() < .6:
            keys = rng.sample(keys, rng.randint(3, len(keys)))
        elif not canon and len(keys) == 3 and rng.random() < .12:
            keys = rng.sample(keys, 2)
        entries = [(k, q["options"][k][0], q["options"][k][1]) for k in keys]
        if not canon and q["extra"] and rng.random() < .25:
            entries += rng.sample(list(q["extra"]), 1)
        if not canon:
            rng.shuffle(entries)
        described = rng.random() < .55
        opts = []
        for k, names, descs in entries:
            name = names[0] if canon or rng.random() < .5 else rng.choice(names)
            opts.append({"name": name, "description": rng.choice(descs)} if described else name)
        out["options"] = opts
        spec["groups"] = [[k] for k, _, _ in entries]
    else:
        levels = q["levels"][0] if canon else rng.choice(q["levels"])
        if not canon and rng.random() < .08:
            levels = levels[::-1]
        out["levels"] = [l for l, _ in levels]
        spec["groups"] = [g for _, g in levels]
    return out, spec


def make_sheet(rng, split="train", family=None, layout=None, n=None, shipped=None, lone=None):
    family = family or rng.choices(list(FAMILIES), [f[2] for f in FAMILIES.values()])[0]
    layout = layout or ("schema_first" if rng.random() < .82 else "document_first")
    if lone is None:
        lone = n is None and shipped is None and rng.random() < (.5 if layout == "document_first" else .05)  # as /v1/systemone asks
    n = 1 if lone else n or rng.choices([1, 2, 3, 4, 5, 6, 7], [.05, .07, .14, .2, .2, .2, .14])[0]
    if family == "lexicon":
        return lexicon.Lexicon(rng, split, layout, 1 if lone else None)
    need = {}
    if family == "generic":
        pairs, need = generic.questions(rng, n, split)
        if not pairs:
            return make_sheet(rng, split, family, layout, n)
        context, keys = [], rng.choice([["text", "message", "review", "post", "comment"], ["document", "content", "note"], ["input", "utterance", "sentence"]])
    else:
        fam = FAMILIES[family][0]
        context, keys = fam["context"], fam["keys"]
        exact = templates.sheet(family)
        if exact and (shipped or shipped is None and not lone and rng.random() < .2):
            schema, specs, key = copy.deepcopy(exact[0]), exact[1], exact[2]
            if layout != "schema_first":
                schema["layout"] = layout
            sheet = Sheet(family, schema, specs, [key], {}, split, layout)
            sheet.state_mode = None if shipped is None and rng.random() < .3 else rng.choice([.3, .55])
            return sheet
        canon = shipped if shipped is not None else not lone and rng.random() < .18
        pairs = []
        if canon:
            for want in SHIPPED[family]:
                q = next(q for q in fam["qs"] if q["ids"][0] == want)
                pairs.append(build_question(rng, q, want, True))
            if rng.random() < .2 and len(pairs) > 1 and shipped is None:
                pairs.pop(rng.randrange(len(pairs)))
        else:
            pool = list(fam["qs"])
            for _ in range(min(n, len(pool))):
                q = rng.choices(pool, [q["weight"] for q in pool])[0]
                pool.remove(q)
                pairs.append(build_question(rng, q, rng.choice(q["ids"]), False))
        if any(s["attr"] == "category" and any("docs" in g or "test" in g for g in s["groups"]) for _, s in pairs):
            need["category_extra"] = 1
    used = set()
    neutral = not shipped and rng.random() < (.1 if family == "generic" else .06)
    for q, _ in pairs:
        if lone:
            q["id"] = "q1"
        elif neutral:
            q["id"] = rng.choice([i for i in policies.NEUTRAL_IDS if i not in used])
        while q["id"] in used:
            q["id"] += rng.choice(["_2", "_b", "2"])
        used.add(q["id"])
    schema = {}
    r = rng.random()
    if context and r < .35:
        schema["instructions"] = rng.choice(context)
    elif r > .85:
        schema["instructions"] = rng.choice(policies.GENERAL)
    schema["questions"] = [q for q, _ in pairs]
    if layout != "schema_first":
        schema["layout"] = layout
    sheet = Sheet(family, schema, [s for _, s in pairs], keys, need, split, layout)
    if family == "router" or shipped:
        sheet.state_mode = rng.choice([.3, .3, .3, .9]) if not shipped else .3
    return sheet
