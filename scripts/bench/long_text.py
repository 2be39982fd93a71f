"""How long a server takes to encode the longest texts: a request is refused for its tokens only after they have been counted.

Run by hand: `python3 scripts/bench/long_text.py` after `make build`; needs nothing but the standard library. The demo model is copied with a
larger number of positions, so that no text is refused by its bytes alone; the context is chosen so that no text fits, and nothing is computed.
Texts are cut into pieces between which a client that left is noticed; the last one has no place for a cut.
"""

import argparse
import json
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from server import DEMO_MODEL, PROGRAM, Server  # noqa: E402

SCHEMA = {"questions": [{"id": "urgent", "type": "boolean"}]}
TEXTS = {
    "words": "Our production database is down, please help! ",
    "one letter": "a",
    "letters that make no words": "qxzjvkwq",
    "one word without an end": "ingening",
}
# Of the demo model's tokenizer.
LONGEST_TOKEN_BYTES = 16


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--bytes", type=int, default=1_000_000, help="of a text; at most the body limit of 8 MiB")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--program", default=PROGRAM)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        shutil.copytree(DEMO_MODEL, model)
        config = json.loads((model / "config.json").read_text())
        config.get("text_config", config)["max_position_embeddings"] = 1 << 21
        (model / "config.json").write_text(json.dumps(config))
        context = str(options.bytes // LONGEST_TOKEN_BYTES + 10_000)
        arguments = ["--ctx", context, "--memory-gib", "1000"]
        with Server(*arguments, model=model, program=options.program) as server:
            for name, words in TEXTS.items():
                text = (words * (options.bytes // len(words) + 1))[: options.bytes]
                seconds = sorted(ask(server, text) for _ in range(options.runs))
                print(f"{name:<28} {seconds[len(seconds) // 2]:.2f} s ({seconds[0]:.2f} to {seconds[-1]:.2f})", flush=True)


def ask(server, text):
    messages = [{"role": "system", "content": json.dumps(SCHEMA)}, {"role": "user", "content": text}]
    body = json.dumps({"messages": messages})
    connection = server.connect(300)
    begun = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    error = json.loads(reply.read())["error"]
    seconds = time.perf_counter() - begun
    connection.close()
    if error["code"] != "context_length_exceeded" or "at least" in error["message"]:
        raise SystemExit(f"not refused for its tokens: {error}")
    return seconds


main()
