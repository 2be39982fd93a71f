"""dgem against a server that is not ours: llama.cpp's, on a model of a few kilobytes whose probabilities are known.

Called by llama_server.sh, which installs the server. The model is a Markov chain written as a Llama checkpoint: no layer changes the
residual stream, which holds the last token one-hot, and the output matrix is the table of the next token's logits. So the right
answer is known for every label, and a label's probability must come back through the server's JSON grammar, its tokens and its
`logprobs` exactly as the table has it. With `--record FILE` the reply to the first request is kept as a fixture.
"""

import json
import math
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import gguf
import numpy as np
import xllamacpp

from server import Server

ROOT = Path(__file__).resolve().parent.parent
WIDTH = 320
# What follows the opening quote of a value, whatever the question: the grammar of the request leaves what it allows.
LABELS = {"yes": 0.30, "no": 0.10, "A": 0.08, "B": 0.20, "C": 0.04, "1": 0.05, "2": 0.15, "other": 0.08}
PIECES = ["{", "}", '"', ":", ",", '":"', '","', "urgent", "team", "mood", *LABELS]
TEMPLATE = {
    "schema": {
        "questions": [
            {"id": "urgent", "type": "boolean"},
            {"id": "team", "type": "choice", "options": ["billing", "support", "engineering"]},
            {"id": "mood", "type": "score", "levels": ["calm", "angry"]},
        ]
    },
    "state": {"ticket": "I was charged twice"},
}
CHAT = "{% for message in messages %}{{ message.content }}\n{% endfor %}"


def chain(path):
    """Writes the model file."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *PIECES]
    types = [2, 3, 3, *[6] * 256, *[1] * len(PIECES)]  # unknown, control, byte, normal
    ids = {token: number for number, token in enumerate(tokens)}
    keys = ["urgent", "team", "mood"]
    likely = {'"': keys, '":"': LABELS, '","': keys[1:], "}": ["</s>"], "<0x0A>": ["{"]}
    likely |= {key: ['":"', '"'] for key in keys} | {label: ['","', "}", '"'] for label in LABELS}
    logits = np.full((len(tokens), WIDTH), -12.0, dtype=np.float32)
    for rank, token in enumerate(['"', "}", ",", "<0x30>"]):  # what ends a string, an object, a number; and 0
        logits[ids[token], :] = 4 - rank
    for last, following in likely.items():
        logits[:, ids[last]] = -12
        for rank, token in enumerate(following):
            share = following[token] if isinstance(following, dict) else 0.9 * 0.1**rank
            logits[ids[token], ids[last]] = math.log(share)
    out = gguf.GGUFWriter(path, "llama")
    out.add_context_length(4096)
    out.add_embedding_length(WIDTH)
    out.add_block_count(1)
    out.add_feed_forward_length(32)
    out.add_head_count(5)
    out.add_head_count_kv(5)
    out.add_layer_norm_rms_eps(1e-6)
    out.add_vocab_size(len(tokens))
    out.add_tokenizer_model("llama")
    out.add_token_list(tokens)
    out.add_token_scores([0.0] * 259 + [float(len(piece)) for piece in PIECES])
    out.add_token_types(types)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    out.add_add_space_prefix(False)
    out.add_chat_template(CHAT)
    one_hot = np.eye(len(tokens), WIDTH, dtype=np.float32)
    out.add_tensor("token_embd.weight", one_hot)
    out.add_tensor("output_norm.weight", np.ones(WIDTH, dtype=np.float32))
    out.add_tensor("output.weight", logits / math.sqrt(WIDTH))  # the norm makes √WIDTH of a one
    for name, shape in {
        "attn_norm": (WIDTH,), "ffn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH),
        "attn_output": (WIDTH, WIDTH), "ffn_gate": (32, WIDTH), "ffn_up": (32, WIDTH), "ffn_down": (WIDTH, 32),
    }.items():
        out.add_tensor(f"blk.0.{name}.weight", np.zeros(shape, dtype=np.float32))
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def serve(model):
    settings = xllamacpp.CommonParams()
    settings.model.path = str(model)
    settings.n_ctx, settings.n_parallel, settings.port, settings.verbosity = 4096, 2, 0, 1
    settings.sampling.temp = 0  # `ask` leaves it to the server
    settings.model_alias, settings.warmup = {"chain"}, False
    return xllamacpp.Server(settings)


def dgem(*arguments, code=0):
    run = subprocess.run([ROOT / "bin" / "dgem", *map(str, arguments)], capture_output=True, text=True, timeout=120, check=False)
    if run.returncode != code:
        sys.exit(f"dgem {arguments}: exit {run.returncode}, not {code}\n{run.stdout}{run.stderr}")
    return run


def probabilities(labels, names):
    """What the table says about these labels, under the names of their answers."""
    total = sum(LABELS[label] for label in labels)
    return {name: LABELS[label] / total for label, name in zip(labels, names, strict=True)}


def check(condition, *shown):
    if not condition:
        sys.exit("\n".join(["llama_server: not as expected", *map(str, shown)]))


def same(answer, expected):
    got = answer["probabilities"]
    check(got.keys() == expected.keys() and all(abs(got[name] - p) < 1e-3 for name, p in expected.items()), answer, expected)
    check(answer["source"] == "generation_logprobs", answer)


def record(url, template, path):
    """Keeps the server's reply to what dgem sends, for the tests that run without it."""
    preview = json.loads(dgem("decide", "-u", url, "-t", template, "--api", "openai", "--dry-run").stdout)
    request = urllib.request.Request(preview["url"], json.dumps(preview["body"]).encode(), preview["headers"])
    with urllib.request.urlopen(request, timeout=60) as reply:
        path.write_text(json.dumps(json.load(reply)) + "\n")


def main():
    with tempfile.TemporaryDirectory() as folder:
        model, template = Path(folder, "chain.gguf"), Path(folder, "triage.json.tmpl")
        chain(model)
        server = serve(model)
        url = server.listening_address + "/v1"
        template.write_text(json.dumps(TEMPLATE))
        if sys.argv[1:2] == ["--record"]:
            return record(url, template, Path(sys.argv[2]))

        decide = ["decide", "-u", url, "-t", template, "-f", "json"]
        asked = json.loads(dgem(*decide, "--api", "openai").stdout)
        same(asked["answers"]["urgent"], probabilities(["yes", "no"], ["yes", "no"]))
        same(asked["answers"]["team"], probabilities("ABC", ["billing", "support", "engineering"]))
        same(asked["answers"]["mood"], probabilities("12", ["calm", "angry"]))
        check(asked["diagnostics"]["prompt_tokens"] > 100 and not asked["missing"], asked)
        mass = asked["diagnostics"]["questions"]["team"]["label_mass"]
        check(abs(mass - 0.32) < 1e-3, mass)
        found = dgem(*decide)  # nobody says what kind of server it is
        check(json.loads(found.stdout)["answers"] == asked["answers"], found.stdout)
        check("makes no decisions" in found.stderr, found.stderr)
        dgem(*decide, "--fail-if", "team=support", code=1)

        permuted = json.loads(dgem(*decide, "--api", "openai", "--permute", "3").stdout)
        # The chain likes the letter B, whatever stands behind it: every order has another answer, and their mean is flat.
        same(permuted["answers"]["team"], dict.fromkeys(["billing", "support", "engineering"], 1 / 3))
        wide = {"id": "wide", "type": "choice", "options": [f"option {n}" for n in range(30)]}
        schema = json.dumps({"questions": [wide]})
        grouped = json.loads(dgem("decide", "-u", url, "--schema", schema, "--state", "{}", "--api", "openai", "-f", "json").stdout)
        check(abs(sum(grouped["answers"]["wide"]["probabilities"].values()) - 1) < 1e-9, grouped)

        rows = Path(folder, "rows.jsonl")
        rows.write_text("".join(json.dumps({"id": str(n), "ticket": "x"}) + "\n" for n in range(6)))
        template.write_text(json.dumps(TEMPLATE).replace("I was charged twice", "{{ ticket }}"))
        decided = Path(folder, "out.jsonl")
        dgem("batch", "-u", url, "-t", template, "-i", rows, "-o", decided, "--api", "openai", "-j", "4")
        answers = [json.loads(line)["answers"] for line in decided.read_text().splitlines()]
        check(len(answers) == 6 and {a["team"]["choice"] for a in answers} == {"support"}, answers)

        with Server() as first:
            second = ["--cascade", "entropy", "--cascade-threshold", "0nats", "--cascade-url", url, "--cascade-model", "chain"]
            output = dgem("decide", "-u", first.url + "/v1", "-t", template, "-v", "ticket=x", "-f", "json", *second).stdout
            document = json.loads(output)
        cascade = document["cascade"]
        check(cascade["error"] is None and cascade["escalated"] == 3 and cascade["stage2_model"] == "chain", cascade)
        check(all(question["stage2"] for question in cascade["questions"]), cascade)

        listed = dgem("models", "-u", url).stdout
        check("chain" in listed, listed)
        said = dgem("ask", "-u", url, "Hello", "--max-tokens", "12").stdout
        check(said.startswith('{"urgent'), said)
    print("llama_server: dgem reads the probabilities of llama.cpp's server as they are")


if __name__ == "__main__":
    main()
