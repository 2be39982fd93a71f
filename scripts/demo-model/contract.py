"""The exact text of the decision contract: sheet, prefix, suffix, document_first prompt, labels and answer names."""

OPENING = "Decide each question below from the state given by the user. Every question lists its labels; choose one label for each question."
CLOSING_SHORT = "Write all answers on one line, separated by single spaces: each id followed at once by its label."
PARTIAL = " Answer only the lines that are present."
CLOSING = "Write one line per question, in the order above: the id, a colon, a space, the label."
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
# Labels past the 26 letters: two capitals, each one token of the tokenizer (255 alternatives in all).
PAIRS = [a + b for a in "ABCDEFGHI" for b in LETTERS][:255 - 26]


def labels_of(q):
    if q["type"] == "boolean":
        return ["yes", "no"]
    if q["type"] == "choice":
        return (list(LETTERS) + PAIRS)[:len(q["options"])]
    n = len(q["levels"])
    return [str(i + 1) for i in range(n)] if n <= 9 else list(LETTERS[:n])


def render_sheet(schema, partial=False):
    blocks = [OPENING]
    if schema.get("instructions", "").strip():
        blocks.append(schema["instructions"].strip())
    for q in schema["questions"]:
        rows = [f"Question {q['id']}: {q.get('instructions', '').strip()}".rstrip()]
        if q["type"] == "boolean":
            c = q.get("criteria") or {}
            rows += ["- yes" + (": " + c["true"] if c.get("true") else ""), "- no" + (": " + c["false"] if c.get("false") else "")]
        elif q["type"] == "choice":
            for l, o in zip(labels_of(q), q["options"]):
                name, desc = (o, None) if isinstance(o, str) else (o["name"], o.get("description"))
                rows.append(f"- {l}: {name}" + (f", {desc}" if desc else ""))
        else:
            rows += [f"- {l}: {v}" for l, v in zip(labels_of(q), q["levels"])]
        blocks.append("\n".join(rows))
    closing = CLOSING if len(schema["questions"]) <= 10 else CLOSING_SHORT
    blocks.append(closing + (PARTIAL if partial else ""))
    return "\n\n".join(blocks)


def render_prefix(schema, partial=False):
    return "<bos><|turn>system\n" + render_sheet(schema, partial).strip() + "<turn|>\n"


def render_suffix(state):
    return "<|turn>user\n" + state.strip() + "<turn|>\n<|turn>model\n"


def render_document_first(schema, state, partial=False):
    return "<bos><|turn>user\n" + ("State:\n" + state + "\n\n" + render_sheet(schema, partial)).strip() + "<turn|>\n<|turn>model\n"


def names(q):
    """Answer names of a question, in label order."""
    return ["yes", "no"] if q["type"] == "boolean" else [o if isinstance(o, str) else o["name"] for o in q["options"]] if q["type"] == "choice" else q["levels"]
