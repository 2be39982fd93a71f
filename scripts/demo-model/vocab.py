"""The demo model's tokenizer: byte-fallback BPE over whole English words, with Gemma 4's special tokens and conventions.

Words come from the phrase banks, from the sheets of the generator and from the most frequent words of the MiniLM
vocabulary (Apache-2.0), so that a word the generator never wrote still is one token with a meaning (embed.py).
Normalizer " " -> "▁"; ids 0..5, 46..52, 98, 100, 101, 105, 106 and newline runs from 107 as in the real model.

  python vocab.py OUT        tokenizer.json, tokenizer_config.json, chat_template.jinja
"""
import json
import os
import random
import re
import sys
from collections import Counter

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors, trainers
from tokenizers.models import BPE

import words
from contract import LETTERS, PAIRS, render_sheet
from sheets import FAMILIES, make_sheet

VOCAB = 16384
PAD, EOS, BOS, UNK, MASK = 0, 1, 2, 3, 4
TURN_CLOSE = 106
CONTROL = {46: "<|tool>", 47: "<tool|>", 48: "<|tool_call>", 49: "<tool_call|>", 50: "<|tool_response>", 51: "<tool_response|>", 52: '<|"|>',
           98: "<|think|>", 100: "<|channel>", 101: "<channel|>", 105: "<|turn>", 106: "<turn|>"}
MEDIA = {VOCAB - 6: "<|image>", VOCAB - 5: "<|audio>", VOCAB - 4: "<|image|>", VOCAB - 3: "<|audio|>", VOCAB - 2: "<image|>", VOCAB - 1: "<audio|>"}
BOI, IMAGE, EOI = VOCAB - 6, VOCAB - 4, VOCAB - 2
NEWLINES, BYTES_AT = 8, 238
# A label written right after an id ("urgentyes") stays a token of its own; the few words that end like one are cut too.
LABEL_CUT = r"(?<=[a-z0-9_])(?:yes|no)(?=[▁\n]|$)"


def counts(n=4000, seed=7):
    """How often each word is wanted, by case and by whether a space precedes it: generator text, banks, MiniLM's list."""
    rng, c = random.Random(seed), Counter()
    cut = re.compile(r"▁?[A-Za-z]+")
    for _ in range(n):
        s = make_sheet(rng, "train", rng.choice([f for f in FAMILIES if f != "lexicon"]))
        lines = "\n".join(f"{q['id']}: x" for q in s.schema["questions"])
        for t in [render_sheet(s.schema), lines] + [s.state(rng)[0] for _ in range(3)]:
            c.update(cut.findall(t.replace("\\n", " ").replace(" ", "▁")))
    for w in words.bank_words():
        c["▁" + w] += 30
    for w in words.DOMAIN:
        c["▁" + w] += 40
        c[w] += 5
        c["▁" + w.capitalize()] += 4
        c[w.capitalize()] += 4
    for rank, w in enumerate(words.frequent()):
        c["▁" + w] += max(5, 40000 // (rank + 500))
        if rank < 1500:
            c[w] += 6
            c["▁" + w.capitalize()] += 8
            c[w.capitalize()] += 6
    return c


def learn():
    tok = Tokenizer(BPE(unk_token="<unk>"))
    tok.pre_tokenizer = pre_tokenizers.Split(Regex(r"\n"), "removed")
    chars = [chr(c) for c in range(33, 127)] + ["▁", "é", "ü", "ö", "ä", "ß", "ñ", "—", "–", "€", "£", "’", "“", "”"]
    room = VOCAB - len(MEDIA) - (BYTES_AT + 256) - len(PAIRS)
    text = ["\n".join([w] * min(n, 400)) for w, n in counts().items()]
    text += ["\n".join(["▁" + l] * 400) for l in LETTERS + "abcdefghijklmnopqrstuvwxyz"] + ["\n".join(["yes", "no"] * 400)]
    tok.train_from_iterator(text, trainers.BpeTrainer(vocab_size=room, special_tokens=[], initial_alphabet=chars, limit_alphabet=len(chars), show_progress=False, min_frequency=2))
    model = json.loads(tok.to_str())["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    have = set(vocab)
    for p in PAIRS:
        if "▁" + p not in have:
            vocab.append("▁" + p)
            merges.append(("▁" + p[0], p[1]))
    return vocab, merges


def build():
    ordered, merges = learn()
    tokens = {PAD: "<pad>", EOS: "<eos>", BOS: "<bos>", UNK: "<unk>", MASK: "<mask>", 5: "[multimodal]"}
    tokens.update(CONTROL)
    tokens.update(MEDIA)
    tokens.update({107 + n: "\n" * (n + 1) for n in range(NEWLINES)})
    tokens.update({BYTES_AT + b: f"<0x{b:02X}>" for b in range(256)})
    for i, t in enumerate(ordered):
        tokens[BYTES_AT + 256 + i] = t
    unused = 0
    for i in range(VOCAB):
        if i not in tokens:
            tokens[i] = f"<unused{unused}>"
            unused += 1
    vocab = {t: i for i, t in tokens.items()}
    assert len(vocab) == VOCAB
    tok = Tokenizer(BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Replace(" ", "▁")
    tok.pre_tokenizer = pre_tokenizers.Split(Regex(LABEL_CUT), "isolated")
    tok.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tok.post_processor = processors.TemplateProcessing(single="<bos> $A", pair="<bos> $A <bos>:1 $B:1", special_tokens=[("<bos>", BOS)])
    special = {"<pad>", "<eos>", "<bos>", "<unk>", "<mask>"} | set(CONTROL.values()) | set(MEDIA.values())
    added = []
    for i in range(VOCAB):
        t = tokens[i]
        if t in special:
            added.append(AddedToken(t, special=True, normalized=False))
        elif t.startswith("<unused") or t == "[multimodal]" or t.strip("\n") == "":
            added.append(AddedToken(t, special=False, normalized=False))
    tok.add_tokens(added)
    return tok


CHAT_TEMPLATE = r"""{#- Compact Gemma-4-style template (own work): turns, system, thinking, flat tools and their calls, images. -#}
{%- macro value(v) -%}
{%- if v is string -%}<|"|>{{ v }}<|"|>
{%- elif v is boolean -%}{{ 'true' if v else 'false' }}
{%- elif v is mapping -%}{ {%- for k, x in v | dictsort -%}{{ k }}:{{ value(x) }}{{ ',' if not loop.last }}{%- endfor -%} }
{%- elif v is iterable -%}[{%- for x in v -%}{{ value(x) }}{{ ',' if not loop.last }}{%- endfor -%}]
{%- else -%}{{ v }}{%- endif -%}
{%- endmacro -%}
{{- bos_token -}}
{%- set thinking = enable_thinking is defined and enable_thinking -%}
{%- set lead = messages[0]['role'] in ['system', 'developer'] -%}
{%- if thinking or tools or lead -%}
{{- '<|turn>system\n' -}}
{%- if thinking -%}{{- '<|think|>\n' -}}{%- endif -%}
{%- if lead -%}{{- messages[0]['content'] | trim -}}{%- endif -%}
{%- if tools -%}{%- for tool in tools -%}
{%- set f = tool['function'] -%}
{{- '<|tool>declaration:' + f['name'] + '{description:' + value(f['description']) + ',parameters:' + value(f['parameters']) + '}<tool|>' -}}
{%- endfor -%}{%- endif -%}
{{- '<turn|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
{%- if not (loop.first and lead) -%}
{%- set goes_on = message['role'] == 'tool' or (message['role'] == 'assistant' and not loop.first and loop.previtem['role'] == 'tool') -%}
{%- if not goes_on -%}
{{- '<|turn>' + ('model' if message['role'] == 'assistant' else message['role']) + '\n' -}}
{%- endif -%}
{%- if message['tool_calls'] -%}{%- for call in message['tool_calls'] -%}
{{- '<|tool_call>call:' + call['function']['name'] + value(call['function']['arguments']) + '<tool_call|>' -}}
{%- endfor -%}{%- endif -%}
{%- if message['role'] == 'tool' -%}{{- '<|tool_response>response:' + message['name'] + '{value:<|"|>' -}}{%- endif -%}
{%- if message['content'] is string -%}{{- message['content'] | trim -}}
{%- else -%}{%- for part in message['content'] -%}
{%- if part['type'] == 'text' -%}{{- part['text'] | trim -}}{%- elif part['type'] == 'image' -%}{{- '<|image|>' -}}{%- endif -%}
{%- endfor -%}{%- endif -%}
{%- if message['role'] == 'tool' -%}{{- '<|"|>}<tool_response|>' -}}{%- endif -%}
{%- if loop.last and message['tool_calls'] -%}{{- '<|tool_response>' -}}
{%- elif message['role'] == 'tool' or message['tool_calls'] -%}
{%- if not loop.last and loop.nextitem['role'] not in ['assistant', 'tool'] -%}{{- '<turn|>\n' -}}{%- endif -%}
{%- else -%}{{- '<turn|>\n' -}}{%- endif -%}
{%- endif -%}
{%- endfor -%}
{%- set last = messages[messages | length - 1] -%}
{%- if add_generation_prompt and last['role'] != 'tool' and not last['tool_calls'] -%}{{- '<|turn>model\n' -}}{%- endif -%}
"""

TOKENIZER_CONFIG = {
    "audio_token": "<|audio|>", "backend": "tokenizers", "boa_token": "<|audio>", "boi_token": "<|image>", "bos_token": "<bos>", "eoa_token": "<audio|>", "eoc_token": "<channel|>",
    "eoi_token": "<image|>", "eos_token": "<eos>", "eot_token": "<turn|>", "escape_token": '<|"|>', "etc_token": "<tool_call|>", "etd_token": "<tool|>", "etr_token": "<tool_response|>",
    "image_token": "<|image|>", "mask_token": "<mask>", "model_max_length": 1000000, "pad_token": "<pad>", "padding_side": "left", "processor_class": "Gemma4Processor",
    "soc_token": "<|channel>", "sot_token": "<|turn>", "stc_token": "<|tool_call>", "std_token": "<|tool>", "str_token": "<|tool_response>", "think_token": "<|think|>",
    "tokenizer_class": "GemmaTokenizer", "unk_token": "<unk>"}


def save(out):
    os.makedirs(out, exist_ok=True)
    tok = build()
    tok.save(os.path.join(out, "tokenizer.json"), pretty=False)
    with open(os.path.join(out, "tokenizer_config.json"), "w") as f:
        json.dump(TOKENIZER_CONFIG, f, indent=1, ensure_ascii=False, sort_keys=True)
        f.write("\n")
    with open(os.path.join(out, "chat_template.jinja"), "w") as f:
        f.write(CHAT_TEMPLATE)
    return tok


def check(t):
    """Every label is one token, after ": " and right after an id."""
    for l in ["yes", "no"] + list(LETTERS) + PAIRS:
        got = t.encode(f"urgent: {l}\nteam: {l}", add_special_tokens=False).tokens
        assert got.count("▁" + l) == 2, got
    for name in ("urgent", "team", "is_bug", "q1", "cost", "data_leaked", "casino"):
        for l in ["yes", "no"] + list(LETTERS) + [str(i) for i in range(1, 10)]:
            got = t.encode(f"{name}{l} {name}{l}", add_special_tokens=False).tokens
            assert got[-1] == l, got


if __name__ == "__main__":
    tok = save(sys.argv[1])
    check(tok)
    print(tok.encode("urgent: yes\nteam: A\nrisk_level: 3\n- AB: x", add_special_tokens=False).tokens)
    print(tok.encode("The customers were overcharged, I was billed $500 twice for my annual renewal this morning! Straße 東", add_special_tokens=False).tokens)
