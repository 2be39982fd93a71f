"""Text to ids: the tokenizer, the answer template of a schema, and where questions and label lines stand on a sheet.
pack.py (training) and decide.py (evaluation, export) use it."""
from tokenizers import Tokenizer

from contract import LETTERS, PAIRS, labels_of

PAD, TURN_CLOSE = 0, 106


class Encoder:
    """Text to ids, and the answer template of a schema."""

    def __init__(self, path):
        self.tok = Tokenizer.from_file(path)
        self.vocab = self.tok.get_vocab_size()
        self.label, self.glued = {}, {}
        for l in ["yes", "no"] + list(LETTERS):
            self.label[l] = self.id("▁" + l)
        pairs = [(l, self.tok.token_to_id("▁" + l)) for l in PAIRS]  # a tokenizer may lack them
        self.label.update({l: i for l, i in pairs if i is not None})
        for l in ["yes", "no"] + list(LETTERS):
            self.glued[l] = self.tok.token_to_id(l)
        for i in range(10):
            self.label[str(i)] = self.glued[str(i)] = self.id(str(i))
        self.colon, self.label_ids = self.id(":"), set(self.label.values())

    def id(self, t):
        i = self.tok.token_to_id(t)
        assert i is not None, t
        return i

    def __call__(self, text):
        return self.tok.encode(text, add_special_tokens=False).ids

    def template(self, questions):
        """(canvas ids, slot positions, label ids of each slot); canvas padded to a multiple of 16."""
        ids, slots, last = [], [], len(questions) - 1
        short = last >= 10
        table = self.glued if short else self.label
        for k, q in enumerate(questions):
            label = labels_of(q)[0]
            end = "" if k == last or short else "\n"
            line = self(((" " if k else "") + f"{q['id']}{label}") if short else f"{q['id']}: {label}{end}")
            at = len(line) - (2 if end else 1)
            assert line[at] == table[label], (q["id"], line)
            slots.append(len(ids) + at)
            ids += line
        ids.append(TURN_CLOSE)
        ids += [PAD] * (-len(ids) % 16)
        return ids, slots, [[table[l] for l in labels_of(q)] for q in questions]


def sheet_spans(ids, schema, lead=1):
    """Token rows of each question's block and of each of its label lines: ((start, end), [(start, end) ...]). `lead` counts
    the newline runs before the sheet's opening."""
    cuts = [i for i, t in enumerate(ids) if 107 <= t <= 114]
    starts, ends = [0] + [i + 1 for i in cuts], cuts + [len(ids)]
    at = lead + (2 if schema.get("instructions", "").strip() else 1)
    out = []
    for q in schema["questions"]:
        n = len(labels_of(q))
        out.append(((starts[at], ends[at + n]), [(starts[at + 1 + l], ends[at + 1 + l]) for l in range(n)]))
        at += n + 1
    return out
