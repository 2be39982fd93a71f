"""Hours in minutes: mixed clients against a real dgemma-server on the demo checkpoint, and what must hold all the while.

Called by soak.sh. Up to 32 clients send good, bad, slow and abandoned requests, chosen at random from a fixed seed. In the end no
thread of the server has panicked, every request that was not abandoned has got a decision or a reason, the memory at rest is within 5 %
of what it was when warm (judged in long runs; the allocator is told to give back at once what is freed, so that
this shows what the server holds), and a control request gives the same probabilities as before: to
the last bit without the prefix cache, which is off for the first half of the time; up to rounding with it, since what is reused decides
in which order sums are taken.
"""

import argparse
import collections
import json
import random
import re
import socket
import sys
import threading
import time

from server import PROGRAM, Server

KEY = "demo-key-of-the-soak"
CHAT, SYSTEMONE = "/v1/chat/completions", "/v1/systemone"
TRIAGE = [
    {"id": "urgent", "type": "boolean", "instructions": "Immediate escalation required?"},
    {"id": "team", "type": "choice", "options": ["billing", "support", "engineering"]},
    {"id": "mood", "type": "score", "levels": ["calm", "frustrated", "furious"]},
]
STAGED = [TRIAGE[0], {**TRIAGE[1], "depends_on": ["urgent"]}, {**TRIAGE[2], "ask_if": {"urgent": ["yes"]}}]
MANY = [{"id": f"q{number}", "type": "boolean", "instructions": f"Is it about item {number}?"} for number in range(10)]
SCHEMAS = [
    {"questions": TRIAGE},
    {"questions": TRIAGE, "samples": 4},
    {"questions": TRIAGE, "samples": "auto", "auto_threshold": 0.0},
    {"questions": TRIAGE, "layout": "document_first", "isolate": True},
    {"questions": STAGED},
    {"questions": MANY},
]
WORDS = "the invoice server was charged twice please help our database is down again since monday thank you".split()
# An allocator that keeps freed memory for later, in pages of 2 MiB, hides what is held.
GIVE_BACK = {"MIMALLOC_PURGE_DELAY": "0", "MIMALLOC_ALLOW_THP": "0"}
# Far beyond every limit of the server: the machine itself may stand still for a minute.
PATIENCE_SECONDS = 300
# Until idle threads, which end after 10 s, have given back theirs.
REST_SECONDS = 12
# The server is warm once its prefix cache has filled to this share and two rests after each other differ by no more than that; it is taken
# to be warm after so many pauses in any case.
FULL, STABLE, MOST_PAUSES = 0.7, 0.02, 4
CACHE = re.compile(r"^dgemma_prefix_cache_bytes (\d+)$", re.M)
# What a refusal may be. Anything else, a 500 above all, is a fault.
REASONS = {400, 401, 404, 405, 408, 413, 415, 422, 429, 431, 503, 504}


def state(random_):
    return " ".join(random_.choice(WORDS) for _ in range(random_.randrange(5, 200)))


def chat(schema, text, **more):
    messages = [{"role": "system", "content": json.dumps(schema)}, {"role": "user", "content": text}]
    return json.dumps({"messages": messages, **more}).encode()


def systemone(text):
    questions = {
        "a:b": {"type": "noul", "instructions": "Is it urgent?"},
        "c": {"type": "choice", "criteria": {"billing": "money", "other": None}},
        "s": {"type": "score", "criteria": ["calm", "furious"]},
    }
    return json.dumps({"state": text, "questions": questions}).encode()


class Soak:
    def __init__(self, server):
        self.server = server
        self.end = 0.0
        self.lock = threading.Lock()
        self.kinds, self.outcomes = collections.Counter(), collections.Counter()
        self.faults = []
        self.resident = []

    def note(self, kind, outcome, fault=None):
        with self.lock:
            self.kinds[kind] += 1
            self.outcomes[outcome] += 1
            if fault:
                self.faults.append(f"{kind}: {fault}")

    def exchange(self, kind, path, body, expected=None, headers=(), method="POST", pause_seconds=0.0):
        """One request with a reply. `expected`: the statuses that this request can have, besides those of a busy server."""
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **dict(headers)}
        connection = self.server.connect(PATIENCE_SECONDS)
        try:
            if pause_seconds:
                connection.putrequest(method, path)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    connection.putheader(name, value)
                connection.endheaders()
                step = max(1, len(body) // 10)
                for start in range(0, len(body), step):
                    connection.send(body[start : start + step])
                    time.sleep(pause_seconds)
            else:
                connection.request(method, path, body, headers)
            reply = connection.getresponse()
            status, text, streamed = reply.status, reply.read(), reply.headers["content-type"] == "text/event-stream"
        except OSError as error:
            self.note(kind, "no reply", repr(error))
            return
        finally:
            connection.close()
        if status == 200:
            outcome, fault = "200", None if streamed else self.unsound(path, text)
        else:
            error = json.loads(text).get("error", {})
            outcome = f"{status} {error.get('code')}"
            fault = None if status in REASONS and "hint:" in error.get("message", "") else text[:300]
        if not fault and expected and status not in expected | {429, 503}:
            fault = f"{status} where {sorted(expected)} was due: {text[:200]}"
        self.note(kind, outcome, fault)

    @staticmethod
    def unsound(path, text):
        """What is wrong with a decision or a reply in text, if anything is."""
        reply = json.loads(text)
        if "x_generation" in reply:
            return None if reply["usage"]["completion_tokens"] <= 8 else f"too long: {reply['usage']}"
        answers = json.loads(reply["choices"][0]["message"]["content"])["answers"] if path == CHAT else reply["answers"]
        for name, answer in answers.items():
            probabilities = answer and (answer.get("probabilities") or answer.get("x_probabilities"))
            if probabilities and abs(sum(probabilities.values()) - 1) > 1e-6:
                return f"{name}: {probabilities}"
        return None if answers else "no answers"

    def good(self, random_):
        choice = random_.randrange(len(SCHEMAS) + 3)
        text = state(random_)
        if choice < len(SCHEMAS):
            self.exchange("good", CHAT, chat(SCHEMAS[choice], text), {200})
        elif choice == len(SCHEMAS):
            self.exchange("good", CHAT, chat(SCHEMAS[0], text, stream=True), {200})
        elif choice == len(SCHEMAS) + 1:
            talk = {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "stream": random_.random() < 0.5}
            self.exchange("good", CHAT, json.dumps(talk).encode(), {200})
        else:
            self.exchange("good", SYSTEMONE, systemone(text), {200})

    def bad(self, random_):
        whole = chat(SCHEMAS[0], "text")
        wrong = [
            lambda: self.exchange("bad", CHAT, b"", {400}),
            lambda: self.exchange("bad", CHAT, whole[: len(whole) // 2], {400}),
            lambda: self.exchange("bad", CHAT, b"\xff\xfe" + whole, {400}),
            lambda: self.exchange("bad", CHAT, b'{"messages":[{"role":"user"}]}', {400}),
            lambda: self.exchange("bad", CHAT, chat({"questions": [{"id": "a", "type": "bolean"}]}, "x"), {400}),
            lambda: self.exchange("bad", CHAT, chat(SCHEMAS[0], "word " * 40_000), {413}),
            lambda: self.exchange("bad", CHAT, b" " * (2 << 20), {413}),
            lambda: self.exchange("bad", SYSTEMONE, b'{"state": 1, "questions": {}}', {422}),
            lambda: self.exchange("bad", SYSTEMONE, b"[" * 5000, {400, 422}),
            lambda: self.exchange("bad", CHAT, whole, {401}, {"Authorization": "Bearer wrong"}),
            lambda: self.exchange("bad", "/v1/nothing", whole, {404}),
            lambda: self.exchange("bad", CHAT, None, {405}, method="GET"),
            lambda: self.exchange("bad", CHAT, whole, {400}, {"X-Request-Timeout-Ms": "soon"}),
            lambda: self.exchange("bad", CHAT, whole, {415}, {"Content-Type": "text/plain"}),
        ]
        random_.choice(wrong)()

    def hurried(self, random_):
        heavy = {**SCHEMAS[5], "samples": random_.choice([1, 8])}
        limit = {"X-Request-Timeout-Ms": str(random_.randrange(1, 50))}
        self.exchange("hurried", CHAT, chat(heavy, state(random_)), {200, 504}, limit)

    def slow(self, random_):
        pause = random_.uniform(0.01, 0.2)
        self.exchange("slow", CHAT, chat(SCHEMAS[0], state(random_)), {200}, pause_seconds=pause)

    def abandoned(self, random_):
        """Leaves in the middle of the body, right after it, or while the decision is made."""
        body = chat({**SCHEMAS[5], "samples": 4}, state(random_))
        fields = {"Host": "x", "Authorization": f"Bearer {KEY}", "Content-Type": "application/json", "Content-Length": len(body)}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = f"POST {CHAT} HTTP/1.1\r\n{head}\r\n".encode()
        cut = random_.choice([len(head) // 2, len(head) + len(body) // 2, len(head) + len(body)])
        try:
            with socket.create_connection(self.server.address, timeout=30) as connection:
                connection.sendall((head + body)[:cut])
                time.sleep(random_.choice([0, 0.005, 0.05]))
            self.note("abandoned", "abandoned")
        except OSError as error:
            self.note("abandoned", "abandoned", repr(error))

    def watched(self, random_):
        path = random_.choice(["/readyz", "/health", "/metrics", "/v1/models"])
        status, _ = self.server.get(path, {"X-API-Key": KEY})
        self.note("watched", str(status), None if status == 200 else f"{path}: {status}")

    def client(self, seed):
        random_ = random.Random(seed)
        kinds = [self.good, self.bad, self.hurried, self.slow, self.abandoned, self.watched]
        while time.monotonic() < self.end:
            kind = random_.choices(kinds, [40, 22, 8, 8, 18, 4])[0]
            try:
                kind(random_)
            except Exception as error:  # a client must not end early without being noticed
                self.note(kind.__name__, "broken", repr(error))

    def run(self, clients, seconds):
        """Lets the clients loose, waits until the queue is empty again, and says how much memory the server has at rest then."""
        self.end = time.monotonic() + seconds
        threads = [threading.Thread(target=self.client, args=[f"{seconds} {number}"]) for number in range(clients)]
        for thread in threads:
            thread.start()
        while time.monotonic() < self.end:
            self.resident.append(self.server.resident_bytes())
            time.sleep(min(1.0, max(0.0, self.end - time.monotonic())))
        for thread in threads:
            thread.join()
        metrics = self.settled()
        time.sleep(min(REST_SECONDS, seconds / 2))
        cached = CACHE.search(metrics or "")
        return self.server.resident_bytes(), int(cached[1]) if cached else 0

    def warm_up(self, clients, seconds, cache_bytes):
        """Loads the server until what it holds for later is full and its memory at rest is stable. The rests in bytes, and those of the cache."""
        rests = []
        while len(rests) < MOST_PAUSES:
            rests.append(self.run(clients, seconds))
            resident, cached = rests[-1]
            before = rests[-2][0] if len(rests) > 1 else 0
            if cached >= FULL * cache_bytes and abs(resident - before) <= STABLE * resident:
                break
        return rests

    def control(self):
        """The probabilities of one fixed decision."""
        connection = self.server.connect()
        body = chat({**SCHEMAS[0], "samples": 3, "seed": 7}, "I was billed $500 twice this morning!")
        connection.request("POST", CHAT, body, {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"})
        content = json.loads(connection.getresponse().read())["choices"][0]["message"]["content"]
        connection.close()
        return [p for answer in json.loads(content)["answers"].values() for p in answer["probabilities"].values()]

    def settled(self):
        """Whether the queue empties once nobody asks any more."""
        for _ in range(100):
            metrics = self.server.get("/metrics", {"X-API-Key": KEY})[1].decode()
            if re.search(r"^dgemma_queue_depth 0$", metrics, re.M):
                return metrics
            time.sleep(0.1)
        return None


def half(name, cache_mib, options):
    """One server under load; what it failed at."""
    seconds = options.seconds / 2
    failures = []
    # A small queue, so that it is full at times, and a cache that has to forget.
    limits = ["--queue", "16", "--prefix-cache-mib", str(cache_mib), "--body-limit-mib", "1"]
    with Server(*limits, program=options.program, environment={"DGEMMA_API_KEYS": KEY, **GIVE_BACK}) as server:
        soak = Soak(server)
        before = soak.control()
        began = time.monotonic()
        rests = soak.warm_up(options.clients, seconds / 10, cache_mib << 20)
        spent = time.monotonic() - began
        last, cached = soak.run(options.clients, max(seconds - spent, seconds / 3))
        first, first_cached = rests[-1]
        took = time.monotonic() - began
        metrics = soak.settled()
        if not metrics:
            failures.append("the queue did not empty in 10 s")
        elif not re.search(r"^dgemma_panics_total 0$", metrics, re.M):
            failures.append("a handler panicked")
        after = soak.control()
        log = server.log()
        status = server.stop()
    apart = max(abs(one - other) for one, other in zip(before, after, strict=True))
    if len(before) != 8 or apart > 0:
        failures.append(f"the control request changed: {before} became {after}")
    failures += [f"the log says: {line}" for line in log.splitlines() if "panicked" in line][:3]
    if status != 0:
        failures.append(f"the server ended with {status}")
    failures += soak.faults[:10]

    judged = seconds >= 240
    if judged and abs(last / first - 1) > 0.05:
        failures.append(f"the memory at rest went from {first / 2**20:.1f} to {last / 2**20:.1f} MiB")

    print(f"soak, {name}: {sum(soak.kinds.values())} requests of {options.clients} clients in {took:.0f} s")
    for kind, count in soak.kinds.most_common():
        print(f"  sent {kind:<30} {count:>8}")
    for outcome, count in sorted(soak.outcomes.items()):
        print(f"  came {outcome:<30} {count:>8}")
    verdict = f"{last / first - 1:+.1%}" + ("" if judged else ", too short a run to judge")
    warming = ", ".join(f"{resident / 2**20:.1f}" for resident, _ in rests)
    print(f"  resident at rest: warm, at the end  {first / 2**20:.1f} MiB, {last / 2**20:.1f} MiB ({verdict}); most {max(soak.resident) / 2**20:.1f} MiB")
    print(f"  rests until warm                    {warming} MiB, after {spent:.0f} s")
    print(f"  prefix cache: warm, at the end      {first_cached / 2**20:.1f} MiB, {cached / 2**20:.1f} MiB")
    print(f"  control request                     {'unchanged to the last bit' if apart == 0 else f'apart by {apart:.1e}'}")
    print(f"  faults                              {len(soak.faults)}", flush=True)
    for failure in failures:
        print(f"soak, {name}: {failure}", file=sys.stderr)
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--clients", type=int, default=32, choices=range(1, 65), metavar="1..64")
    parser.add_argument("--program", default=PROGRAM)
    options = parser.parse_args()
    failures = half("no prefix cache", 0, options) + half("prefix cache of 8 MiB", 8, options)
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
