"""Generic sheets: topics, named things, opinions, facts. `world` writes a text (see worlds.py), `questions` draws what is
asked of it. sheets.py calls both."""
import re

import banks as B
import banks_generic as G
from phrases import fill, join, norm, part, say, yn

STARS = [[("very negative", [1]), ("negative", [2]), ("neutral", [3]), ("positive", [4]), ("very positive", [5])], [("awful", [1]), ("poor", [2]), ("average", [3]), ("good", [4]), ("excellent", [5])],
         [("negative", [1, 2]), ("neutral", [3]), ("positive", [4, 5])], [("bad", [1, 2]), ("mixed", [3]), ("good", [4, 5])], [("1 star", [1]), ("2 stars", [2]), ("3 stars", [3]), ("4 stars", [4]), ("5 stars", [5])],
         [("dislikes it", [1, 2]), ("likes it", [4, 5])], [("hates it", [1]), ("dislikes it", [2]), ("indifferent", [3]), ("likes it", [4]), ("loves it", [5])]]


def world(rng, split, need):
    d, sents, told = {}, [], []
    topics = need.get("topics")
    if topics:
        other = need.get("other", 0) and rng.random() < .2 or rng.random() < need.get("off", 0)
        t = rng.choice([i for i in topic_pool(split) if i not in topics] if other else topics)
        two = rng.random() < .07
        key = {"train": "train", "unseen": "sents"}.get(split, "held")
        n = 1 if two or rng.random() < .45 else 2
        pool = G.TOPICS[t][key]
        sents += rng.sample(pool, min(n, len(pool)))
        told += [(s, "topic", t) for s in sents]
        d["topic"] = {i: .002 for i in range(len(G.TOPICS))}
        d["topic"][t] = 1
        if two:
            u = rng.choice([i for i in topics if i != t] or [t])
            sents.append(rng.choice(G.TOPICS[u][key]))
            told.append((sents[-1], "topic", u))
            d["topic"][u] = 1
        d["topic"] = norm(d["topic"])
    if need.get("opinion") or rng.random() < .15:
        o = rng.randint(1, 5)
        e, before = rng.random(), len(sents)
        sents += [] if e > .75 else [rng.choice(G.NOUN) + rng.choice([" was ", " is ", " turned out to be "]) + rng.choice(part(G.ADJ[o], split))]
        sents += [say(rng, G.OPINION[o], split)] if e > .5 else []
        told += [(s, attr, key) for s in sents[before:] for attr, key in (("opinion", o), ("pos", "yes" if o > 3 else "no"), ("neg", "yes" if o < 3 else "no")) if attr == "opinion" or o != 3]
        w = {k: (.84 if k == o else .07 if abs(k - o) == 1 else .01) for k in range(1, 6)}
        if rng.random() < .08:
            o2 = rng.randint(1, 5)
            sents.append(rng.choice(["but ", "still, ", "however "]) + rng.choice(G.NOUN) + " was " + rng.choice(part(G.ADJ[o2], split)))
            for k in w:
                w[k] += .84 if k == o2 else .07 if abs(k - o2) == 1 else .01
        d["opinion"] = o = norm(w)
        d["pos"], d["neg"] = yn(o[4] + o[5] + o[3] * .5), yn(o[1] + o[2] + o[3] * .5)
    facts = set(need.get("facts", ()))
    present = [f for f in G.FACTS if rng.random() < (.5 if f in facts else .1)]  # a list: the order decides what is drawn next
    for f in present:
        sents.append(say(rng, G.FACTS[f][2], split))
        told.append((sents[-1], f, "yes"))
    text_fill = rng.sample(part(G.FACT_FILL, split), 1) if rng.random() < .35 or not sents else []
    sents += text_fill
    sents = [fill(rng, s) for s in sents]
    if need.get("entity"):
        cat, opts = need["entity"]
        e = rng.choice(opts)
        sents = [s for s in sents if not any(o.lower() in s.lower() for o in opts)]
        sents.append(fill(rng, rng.choice(part(G.ENTITY[cat][2], split)).replace("{" + cat + "}", e)))
        told.append((e, "entity", e))
        d["entity"] = {o: (.98 if o == e else .02 / len(opts)) for o in opts}
    rng.shuffle(sents)
    joined = " ".join(sents)
    for f in G.FACTS:
        y = f in present
        if f in ("animal", "city", "person", "colour", "price") and not y:
            pool = B.FILL[{"price": "money"}.get(f, f)]
            y = any(re.search(r"\b" + re.escape(w) + r"\b", joined) if w[0].isalnum() else w in joined for w in pool)
        if f == "date" and not y:
            y = any(re.search(r"\b" + w + r"\b", joined) for w in B.FILL["day"] + B.FILL["month"])
        if f == "question" and not y:
            y = "?" in joined or any(s.split(" ")[0].lower() in ("how", "what", "where", "which", "who", "can", "when", "why", "do", "is", "could") for s in sents)
        d[f] = yn(.97 if y else .03)
    d["told"] = told
    return join(rng, sents), d


def topic_pool(split):
    """Indices of the topics of a split: a quarter of them is only ever seen under the split `unseen`."""
    return [i for i, t in enumerate(G.TOPICS) if t["held_topic"] == (split == "unseen")]


def questions(rng, n, split):
    need, qs = {"facts": []}, []
    kinds = rng.choices(["entity", "topic", "is_topic", "opinion", "is_pos", "fact"], [2.4, 3, 1.6, 1.6, .7, 2], k=n + 2)
    seen = set()
    for kind in kinds:
        if len(qs) == n:
            break
        if kind in ("entity", "topic", "opinion", "is_pos") and kind in seen:
            continue
        if kind in ("topic", "is_topic") and ("topic" in seen or "is_topic" in seen) and kind not in seen:
            continue
        seen.add(kind)
        if kind == "entity":
            cat = rng.choice(list(G.ENTITY))
            ids, ins, _ = G.ENTITY[cat]
            opts = rng.sample(B.FILL[cat], min(len(B.FILL[cat]), rng.choice([2, 3, 3, 4, 5, 6])))
            need["entity"] = (cat, opts)
            qs.append(({"id": rng.choice(ids), "type": "choice", "instructions": rng.choice(ins), "options": list(opts)}, {"attr": "entity", "type": "choice", "groups": [[o] for o in opts]}))
        elif kind == "topic":
            ts = rng.sample(topic_pool(split), rng.choice([2, 3, 3, 4, 4, 5, 6, 8]))
            need["topics"] = ts
            described = rng.random() < .5
            opts = []
            for t in ts:
                T = G.TOPICS[t]
                name = rng.choice(T["names"]).replace(" ", rng.choice(["_", " "]))
                opts.append({"name": name, "description": rng.choice(T["descs"])} if described else name)
            spec = {"attr": "topic", "type": "choice", "groups": [[t] for t in ts]}
            if rng.random() < .25:
                need["other"] = 1
                opts.append({"name": rng.choice(["other", "none", "something_else"]), "description": "anything else"} if described else rng.choice(["other", "none of these"]))
                spec["groups"].append([])
                spec["rest"] = len(opts) - 1
            qs.append(({"id": rng.choice(["topic", "subject", "theme", "category", "area", "about"]), "type": "choice",
                        "instructions": rng.choice(["Topic of the text", "What is the text about?", "Choose the subject", "Which topic fits best?", "Main theme"]), "options": opts}, spec))
        elif kind == "is_topic":
            t = rng.choice(need["topics"]) if need.get("topics") and rng.random() < .7 else rng.choice(topic_pool(split))
            need["topics"] = list(dict.fromkeys((need.get("topics") or []) + [t]))
            need["off"] = .5 if len(need["topics"]) == 1 else .1
            T = G.TOPICS[t]
            name = rng.choice(T["names"])
            q = {"id": rng.choice(["about_" + name.split(" ")[0], "is_" + name.split(" ")[0], "relevant", "on_topic", "match", "about_it"]), "type": "boolean",
                 "instructions": rng.choice(["Is the text about {}?", "Does it concern {}?", "Is {} the subject?", "Does this belong to {}?", "Relevant for {}?"]).format(name)}
            if rng.random() < .4:
                q["criteria"] = {"true": rng.choice(T["descs"]), "false": rng.choice(["anything else", "another topic", "not about this"])}
            qs.append((q, {"attr": "topic", "type": "boolean", "groups": [[t]]}))
        elif kind == "opinion":
            need["opinion"] = 1
            lv = rng.choice(STARS)
            if rng.random() < .1:
                lv = lv[::-1]
            qs.append(({"id": rng.choice(["rating", "stars", "opinion", "sentiment", "review", "satisfaction"]), "type": "score",
                        "instructions": rng.choice(["How does the writer rate it?", "Opinion of the writer", "Satisfaction", "How good was it?", "Sentiment of the review"]), "levels": [l for l, _ in lv]},
                       {"attr": "opinion", "type": "score", "groups": [g for _, g in lv], "loose": 1}))
        elif kind == "is_pos":
            need["opinion"] = 1
            pos = rng.random() < .6
            qs.append(({"id": rng.choice(["positive", "likes_it", "happy", "recommends"] if pos else ["negative", "dislikes_it", "unhappy", "complains"]), "type": "boolean",
                        "instructions": rng.choice(["Is the opinion positive?", "Does the writer like it?", "Is the writer satisfied?"] if pos else ["Is the opinion negative?", "Does the writer dislike it?", "Is the writer dissatisfied?"])},
                       {"attr": "pos" if pos else "neg", "type": "boolean", "groups": [["yes"]]}))
        else:
            f = rng.choice([k for k in G.FACTS if k not in need["facts"]])
            need["facts"].append(f)
            ids, ins, _ = G.FACTS[f]
            qs.append(({"id": rng.choice(ids), "type": "boolean", "instructions": rng.choice(ins)}, {"attr": f, "type": "boolean", "groups": [["yes"]]}))
    return qs, need
