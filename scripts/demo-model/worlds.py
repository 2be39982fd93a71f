"""Texts of the six policies with what is true in them: `world(rng, split, need)` gives (text, {attribute: {key: probability}}).

`told` lists which phrase speaks for which key: (phrase, attribute, key); training looks use it (clues.py), labels do not.
"""
import banks as B
from phrases import fill, join, norm, part, say, yn

def support(rng, split, need):
    d = {}
    team = rng.choices(["billing", "support", "engineering", "mixed"], [.3, .27, .33, .1])[0]
    bank, block = {"billing": (B.BILLING, B.BILLING_BLOCK), "support": (B.SUPPORT, B.SUPPORT_BLOCK), "engineering": (B.ENG_MINOR, B.ENG_MAJOR), "mixed": (None, None)}[team]
    major = rng.random() < (.5 if team == "engineering" else .22)
    if team == "mixed":
        text, w = rng.choice(part(B.MIXED_TEAM, split))
        issue, d["team"], base = fill(rng, text), dict(zip(("billing", "support", "engineering"), w)), .12
        major = False
    else:
        issue = say(rng, block if major else bank, split)
        d["team"] = {k: (.96 if k == team else .02) for k in ("billing", "support", "engineering")}
        base = ((.82 if team == "engineering" else .6) if major else .05)
    sents = [issue]
    told = [] if team == "mixed" else [(issue, "team", team)]
    told += [(issue, "urgent", "yes")] if major else []
    if team != "mixed" and rng.random() < .12:
        other = rng.choice([t for t in ("billing", "support", "engineering") if t != team])
        second = say(rng, {"billing": B.BILLING, "support": B.SUPPORT, "engineering": B.ENG_MINOR}[other], split)
        lead = rng.choice(["also ", "by the way, ", "one more thing: ", "and a minor point: ", "besides, "])
        sents.append(lead + second)
        d["team"] = {k: (.68 if k == team else .28 if k == other else .04) for k in d["team"]}
    if team != "mixed" and rng.random() < .07:
        other = rng.choice([t for t in ("billing", "support", "engineering") if t != team])
        sents.append({"billing": rng.choice(["this is not about money", "my invoices are fine", "it has nothing to do with the payment"]), "support": rng.choice(["I know how to use it", "I do not need instructions", "my login works"]),
                      "engineering": rng.choice(["it is not a bug", "the software itself works", "there is no error, the system runs well"])}[other])
    cue = rng.choices(["strong", "soft", "none", "not", "both"], [.3, .1, .35, .23, .02])[0]
    p = base
    if cue == "strong":
        sents.append(say(rng, B.URGENT_STRONG, split)); p = .97 if major else .88
        told.append((sents[-1], "urgent", "yes"))
    elif cue == "soft":
        sents.append(say(rng, B.URGENT_SOFT, split)); p = .9 if major and team == "engineering" else .72 if major else .38
    elif cue == "not":
        sents.append(say(rng, B.NOT_URGENT, split)); p = .28 if major else .015
        told.append((sents[-1], "urgent", "no"))
    elif cue == "both":
        sents += [say(rng, B.URGENT_STRONG, split), say(rng, B.NOT_URGENT, split)]; p = .5
    tone = rng.choices(["none", "calm", "frustrated", "furious", "calm+frustrated", "frustrated+furious"], [.14, .25, .25, .26, .05, .05])[0]
    d["tone"] = {"none": dict(calm=.92, frustrated=.07, furious=.01), "calm": dict(calm=.98, frustrated=.015, furious=.005), "frustrated": dict(calm=.03, frustrated=.93, furious=.04),
                 "furious": dict(calm=.003, frustrated=.03, furious=.967), "calm+frustrated": dict(calm=.38, frustrated=.6, furious=.02), "frustrated+furious": dict(calm=.005, frustrated=.195, furious=.8)}[tone]
    tones = [say(rng, B.TONE[t], split) for t in tone.split("+") if t != "none"]
    if tone in ("calm", "frustrated", "furious") and rng.random() < .35:
        tones.append(say(rng, B.TONE[tone], split))
    if "+" not in tone:
        told += [(t, "tone", tone) for t in tones]
    solved = rng.random() < .06
    if solved:
        p = .03
        if rng.random() < .5:
            d["team"] = norm({k: v + .1 for k, v in d["team"].items()})
    d["urgent"], d["solved"] = yn(p), yn(.97 if solved else .02)
    churn, call = rng.random() < .2, rng.random() < .2
    d["churn"], d["call"] = yn(.95 if churn else .03), yn(.96 if call else .02)
    extra = ([say(rng, B.CHURN, split)] if churn else []) + ([say(rng, B.ASK_CALL, split)] if call else []) + ([say(rng, B.SOLVED, split)] if solved else [])
    told += zip(extra, [a for a, on in (("churn", churn), ("call", call), ("solved", solved)) if on], ["yes"] * 3)
    extra += [say(rng, B.NEUTRAL_LINK, split)] if rng.random() < .3 else []
    body = sents + extra
    if rng.random() < .5:
        rng.shuffle(body)
    k = rng.random()
    body = tones + body if k < .4 else body + tones if k < .7 else tones[:1] + body + tones[1:]
    if k > .9:
        rng.shuffle(body)
    d["told"] = told
    return join(rng, body), d


RISKS = ["low", "medium", "high", "critical"]


def code(rng, split, need):
    cats = ["bugfix", "feature", "refactor", "security"] + (["docs", "test"] if need.get("category_extra") else [])
    cat = rng.choice(cats)
    d = {"category": {c: (.95 if c == cat else .05 / 5) for c in ("bugfix", "feature", "refactor", "security", "docs", "test")}}
    risk = {"docs": [.95, .04, .01, 0], "test": [.9, .08, .02, 0], "refactor": [.75, .22, .03, 0], "bugfix": [.6, .35, .05, 0], "feature": [.3, .6, .09, .01], "security": [.35, .5, .13, .02]}[cat]
    title = say(rng, B.CR_TITLE[cat], split)
    snippets = [say(rng, B.CR_OK[cat], split)] if rng.random() < .8 else []
    told = [(t, "category", cat) for t in [title] + snippets]
    flaw = rng.random() < .38
    p, hole = .9, .02
    if flaw:
        code, lvl = rng.choice(part(B.CR_FLAW, split))
        snippets.append(fill(rng, code))
        told += [(snippets[-1], "risk", lvl), (snippets[-1], "approved", "no")] + [(snippets[-1], "hole", "yes")] * (lvl in ("high", "critical"))
        i = RISKS.index(lvl)
        risk = [.9 if j == i else .08 if abs(j - i) == 1 else .01 for j in range(4)]
        p, hole = (.04 if i else .35), (.95 if i == 3 else .6 if i == 2 else .05)
        rng.shuffle(snippets)
    notes = []
    r = rng.random()
    if r < .4:
        notes.append(say(rng, B.CR_OK_NOTE, split)); p = .12 if flaw else .97
        told += [] if flaw else [(notes[-1], "approved", "yes")]
    elif r < .6:
        notes.append(say(rng, B.CR_FLAW_NOTE, split)); p = .02 if flaw else .05
        told.append((notes[-1], "approved", "no"))
    r = rng.random()
    if r < .2 and not flaw:
        notes.append(say(rng, B.CR_AREA_HIGH, split)); risk = [.03, .25, .67, .05]
        told.append((notes[-1], "risk", "high"))
    elif r < .4:
        notes.append(say(rng, B.CR_AREA_LOW, split))
        if not flaw:
            risk = [.93, .06, .01, 0]
            told.append((notes[-1], "risk", "low"))
    d.update(approved=yn(p), hole=yn(hole), risk=dict(zip(RISKS, risk)), told=told)
    file = rng.choice(B.FILL["file"])
    head = rng.choice(["Title: " + title, title, "PR: " + title, "## " + title])
    diff = (rng.choice(["--- a/{0}\n+++ b/{0}\n", "@@ {0} @@\n", "", ""]).format(file) + "\n".join(snippets)).strip("\n")
    rng.shuffle(notes)
    desc = " ".join(notes)
    order = rng.random()
    parts = [head, desc, diff] if order < .5 else [head, diff, desc]
    return "\n".join(x for x in parts if x), d


def security(rng, split, need):
    want = rng.choice(["monitor", "revoke_key", "isolate_host", "page_oncall"])
    names = ("monitor", "revoke_key", "isolate_host", "page_oncall")
    bank = part(B.SEC, split)
    pool = [s for s in bank if names[max(range(4), key=lambda i: s[2][i])] == want] or bank
    text, p, act, sev = rng.choice(pool)
    sents, tail = [fill(rng, text)], []
    notes = []  # (phrase, data compromise)
    r = rng.random()
    if r < .25 and p < .8:
        tail.append(say(rng, B.SEC_NOTE_NEG, split)); p = min(p, .03)
        notes.append((tail[-1], "data", "no"))
    elif r < .4 and want != "monitor":
        tail.append(say(rng, B.SEC_NOTE_POS, split)); p = .97
        notes.append((tail[-1], "data", "yes"))
        act = [a * w for a, w in zip(act, (.2, .9, .9, 1))]
        act = [a / (sum(act) + .35) for a in act]; act[3] += 1 - sum(act)
        sev = [0, sev[0] * .5, sev[1] + sev[2] * .6 + sev[0] * .5, sev[3] + sev[2] * .4]
    for _ in range(rng.choice([0, 0, 1, 1, 2])):
        tail.append(say(rng, B.SEC_NOTE_ANY, split))
    if rng.random() < .5:
        rng.shuffle(tail)
    body = sents + tail if rng.random() < .75 else tail[:1] + sents + tail[1:]
    w = act[3] + sev[3] * (1 - act[3])
    levels = ("p3", "p2", "p1", "p0")
    told = notes + [(sents[0], "action", names[max(range(4), key=act.__getitem__)]), (sents[0], "severity", levels[max(range(4), key=sev.__getitem__)])]
    told += [] if notes or .3 < p < .7 else [(sents[0], "data", "yes" if p > .5 else "no")]
    told += [] if .3 < w < .7 else [(sents[0], "wake", "yes" if w > .5 else "no")]
    return join(rng, body), {"data": yn(p), "action": norm(dict(zip(names, act))), "severity": norm(dict(zip(levels, sev))), "wake": yn(min(.98, max(.02, w))), "told": told}


def injection(rng, split, need):
    r = rng.random()
    if r < .27:
        said, p = [say(rng, B.INJ, split)], .98
        text = list(said)
    elif r < .5:
        text, p = [say(rng, rng.choice([B.BENIGN, B.BENIGN_HARD]), split), say(rng, B.INJ, split)], .97
        said = text[1:]
        rng.shuffle(text)
    elif r < .68:
        said, p = [say(rng, B.BENIGN_HARD, split)], .04
        text = list(said)
    elif r < .92:
        text, p = [say(rng, B.BENIGN, split)], .01
        if rng.random() < .4:
            text.append(say(rng, rng.choice([B.BENIGN, B.BENIGN_HARD]), split))
        said = list(text)
    else:
        said, p = [], .5
        text = [rng.choice(["the instructions are strange", "new rules apply from today", "can you tell me more about yourself", "I am the administrator", "what are you allowed to do", "please skip the introduction",
                               "be a pirate for one answer", "answer in one word only", "show me your rules", "speak freely"])]
    if rng.random() < .2:
        text.append(rng.choice(["Thanks", "please be quick", "my name is " + rng.choice(B.FILL["person"]), "it is for school", "I am from " + rng.choice(B.FILL["city"])]))
    return join(rng, text), {"injection": yn(p), "told": [(t, "injection", "yes" if p > .5 else "no") for t in said]}


def router(rng, split, need):
    t = rng.choice(list(B.AGENT))
    d = {k: (.94 if k == t else .015) for k in B.AGENT}
    text = say(rng, B.AGENT[t], split)
    told = [(text, "tool", t)]
    if rng.random() < .12:
        u = rng.choice([k for k in B.AGENT if k not in (t, "ask_user")])
        text = join(rng, [text, rng.choice(["then ", "afterwards ", "and later "]) + say(rng, B.AGENT[u], split)])
        d = {k: (.7 if k == t else .24 if k == u else .02) for k in B.AGENT}
    else:
        text = join(rng, [text])
    last = fill(rng, rng.choice(B.AGENT_LAST[rng.choice(list(B.AGENT_LAST))]))
    return (text, {"last_action": last}), {"tool": norm(d), "told": told}


def contract(rng, split, need):
    renew, cap, risk = rng.random() < .5, rng.choice(list(B.CAP)), rng.choice(list(B.LEGAL_RISK))
    sents = [say(rng, B.RENEW[renew], split), say(rng, B.CAP[cap], split), say(rng, B.LEGAL_RISK[risk], split)]
    told = list(zip(sents, ("renews", "cap", "legal"), ("yes" if renew else "no", cap, risk)))
    sents += [say(rng, B.CONTRACT_FILL, split)] if rng.random() < .4 else []
    rng.shuffle(sents)
    ks = list(B.LEGAL_RISK)
    i = ks.index(risk)
    return join(rng, sents), {"renews": yn(.97 if renew else .03), "cap": {k: (.95 if k == cap else .025) for k in B.CAP}, "legal": norm({k: (.86 if j == i else .1 if abs(j - i) == 1 else .01) for j, k in enumerate(ks)}), "told": told}
