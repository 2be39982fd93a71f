"""How many decisions a second over HTTP, and how long each takes, with 1, 4, 16 and 64 clients at once.

Run by hand: `python3 scripts/bench/over_http.py --model DIR` after `make build`; needs nothing but the standard library. Every client has one
connection and sends its next request when it has the reply: the schema is known to the server, the state is new each time. The numbers of
clients take turns in short rounds, so that a disturbance of the machine meets all of them. What the server spends around the engine is the time
that its log has for a request less the queue, prefill and denoise milliseconds of the reply, so nothing of this client is in it.
"""

import argparse
import json
import math
import re
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from server import DEMO_MODEL, PROGRAM, Server  # noqa: E402

SCHEMA = {
    "instructions": "You triage support tickets of a software company.",
    "questions": [
        {"id": "urgent", "type": "boolean", "instructions": "Does this ticket need action right away?"},
        {"id": "team", "type": "choice", "options": ["billing", "support", "engineering"]},
        {"id": "mood", "type": "score", "levels": ["calm", "frustrated", "furious"]},
    ],
}
SYSTEM = {"role": "system", "content": json.dumps(SCHEMA)}
PATH = "/v1/chat/completions"


class Level:
    """So many clients, over all rounds."""

    def __init__(self, clients):
        self.clients = clients
        self.lock = threading.Lock()
        self.wall_ms, self.seconds, self.failures, self.passes = [], 0.0, [], 0
        self.engine_ms = {}

    def round(self, server, seconds, first_state):
        passes = count_of_passes(server)
        start = time.monotonic()
        end = start + seconds
        threads = [
            threading.Thread(target=self.client, args=[server, end, f"{first_state + number:04}"])
            for number in range(self.clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds += time.monotonic() - start
        self.passes += count_of_passes(server) - passes

    def client(self, server, end, name):
        connection = server.connect()
        walls, engines, failures, number = [], {}, [], 0
        while time.monotonic() < end:
            number += 1
            ticket = f"{name}-{number:06}: I was billed $500 twice for my annual renewal this morning!"
            user = {"role": "user", "content": json.dumps({"ticket": ticket})}
            body = json.dumps({"messages": [SYSTEM, user]})
            begun = time.perf_counter()
            try:
                connection.request("POST", PATH, body, {"Content-Type": "application/json"})
                reply = connection.getresponse()
                text = reply.read()
            except OSError as error:
                failures.append(repr(error))
                connection.close()
                continue
            wall = (time.perf_counter() - begun) * 1e3
            if reply.status != 200:
                failures.append(f"{reply.status} {text[:200]!r}")
                continue
            walls.append(wall)
            timing = json.loads(json.loads(text)["choices"][0]["message"]["content"])["diagnostics"]["timing"]
            engines[reply.headers["x-request-id"]] = timing["queue_ms"] + timing["prefill_ms"] + timing["denoise_ms"]
        connection.close()
        with self.lock:
            self.wall_ms += walls
            self.failures += failures
            self.engine_ms |= engines

    def rate(self):
        return len(self.wall_ms) / self.seconds


def count_of_passes(server):
    return int(re.search(r"^dgemma_forward_seconds_count (\d+)$", server.get("/metrics")[1].decode(), re.M)[1])


def percentile(values, share):
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def logged_ms(log):
    """Request id → milliseconds from the headers to the reply, as the server saw it."""
    lines = (json.loads(line) for line in log.splitlines() if line.startswith("{"))
    return {line["request_id"]: line["ms"] for line in lines if line.get("path") == PATH and "ms" in line}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--model", default=DEMO_MODEL, help="checkpoint folder")
    parser.add_argument("--program", default=PROGRAM)
    parser.add_argument("--threads", default="2", help="threads of the model")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--clients", default="1,4,16,64", help="numbers of clients, the first is compared with")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=5, help="of one round")
    options = parser.parse_args()
    levels = [Level(min(int(clients), 200)) for clients in options.clients.split(",")]
    arguments = ["--threads", options.threads, "--dtype", options.dtype, "--log-format", "json"]
    with Server(*arguments, model=options.model, program=options.program, patience_seconds=600) as server:
        Level(levels[0].clients).round(server, min(2.0, options.seconds), 9000)  # not counted
        for turn in range(options.rounds):
            for level in levels:
                level.round(server, options.seconds, 200 * turn)
        logged = logged_ms(server.log())

    base = levels[0]
    base_p50 = statistics.median(base.wall_ms)
    print("| clients | decisions | failed | per second | × | p50 ms | p99 ms | p99 ÷ p50 of one | decisions a pass | around the engine, p50 ms |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for level in levels:
        p50, p99 = statistics.median(level.wall_ms), percentile(level.wall_ms, 0.99)
        around = [logged[id_] - engine for id_, engine in level.engine_ms.items() if id_ in logged]
        print(
            f"| {level.clients} | {len(level.wall_ms)} | {len(level.failures)} | {level.rate():.1f} | {level.rate() / base.rate():.2f} "
            f"| {p50:.1f} | {p99:.1f} | {p99 / base_p50:.1f} | {len(level.wall_ms) / max(1, level.passes):.1f} "
            f"| {statistics.median(around):.2f} |"
        )
    for failure in [failure for level in levels for failure in level.failures][:5]:
        print(failure, file=sys.stderr)
    sys.exit(any(level.failures for level in levels))


main()
