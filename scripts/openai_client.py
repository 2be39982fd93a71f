"""The official OpenAI client against dgemma-server on the demo checkpoint: decisions, streams, and every kind of refusal.

Called by openai_client.sh, which installs the client. What is checked is what a program that knows only OpenAI's API relies on:
the client's own types parse the replies, and each refusal is the exception that the client has for it.
"""

import json
import os
import tempfile
import threading
import time
from pathlib import Path

import openai

from server import DEMO_MODEL, Server

KEY = "demo-key-of-the-client-test"
SCHEMA = {
    "instructions": "Triage customer tickets",
    "questions": [
        {"id": "urgent", "type": "boolean", "instructions": "Immediate escalation required?"},
        {"id": "team", "type": "choice", "options": ["billing", "support", "engineering"]},
        {"id": "mood", "type": "score", "levels": ["calm", "frustrated", "furious"]},
    ],
}
STATE = json.dumps({"ticket": "Our production database is down!"})


def messages(schema=None, state=STATE):
    return [{"role": "system", "content": json.dumps(schema or SCHEMA)}, {"role": "user", "content": state}]


def client(server, key=KEY, retries=0):
    return openai.OpenAI(base_url=server.url + "/v1", api_key=key, max_retries=retries, timeout=60)


def check(condition, *shown):
    if not condition:
        raise SystemExit(f"openai client: unexpected: {shown}")


def decide(one, **settings):
    return one.chat.completions.create(model="demo-model", messages=messages(), **settings)


def check_decision(content):
    answers = json.loads(content)["answers"]
    check(list(answers) == ["urgent", "team", "mood"], answers)
    for answer in answers.values():
        check(abs(sum(answer["probabilities"].values()) - 1) < 1e-6, answer)
    check(list(answers["team"]["probabilities"]) == ["billing", "support", "engineering"], answers["team"])


def refused(kind, status, code, call):
    """The call must raise exactly this exception, with our code and a hint in it."""
    try:
        call()
    except openai.APIStatusError as error:
        check(type(error) is kind and error.status_code == status, type(error), error.status_code, error.body)
        check(error.code == code and "hint:" in error.body["message"], error.code, error.body)
        check(error.request_id, error.response.headers)
        print(f"openai client: {status} {code} is {kind.__name__}")
        return error
    raise SystemExit(f"openai client: {code} was expected, and the request was answered")


def decisions_and_refusals():
    with Server(environment={"DGEMMA_API_KEYS": KEY}) as server:
        one = client(server)
        raw = one.chat.completions.with_raw_response.create(model="demo-model", messages=messages(), temperature=0)
        check(raw.headers["server-timing"].startswith("decide;dur="), raw.headers)
        reply = raw.parse()
        check_decision(reply.choices[0].message.content)
        check(reply.choices[0].finish_reason == "stop", reply)
        check(reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens, reply.usage)
        check(reply._request_id == raw.headers["x-request-id"], reply._request_id)

        chunks = list(decide(one, stream=True, stream_options={"include_usage": True}))
        check_decision("".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices))
        check(chunks[-1].usage.completion_tokens == reply.usage.completion_tokens, chunks[-1])

        names = [model.id for model in one.models.list()]
        check(names == ["demo-model", "demo-model:think", "demo-model:think=false"], names)

        for wrong in ["another-key", KEY + "x"]:
            refused(openai.AuthenticationError, 401, "invalid_api_key", lambda: decide(client(server, wrong)))
        keyless = {"Authorization": openai.omit}
        refused(openai.AuthenticationError, 401, "missing_api_key", lambda: decide(one, extra_headers=keyless))
        error = refused(
            openai.BadRequestError,
            400,
            "no_schema",
            lambda: one.chat.completions.create(model="demo-model", messages=[{"role": "user", "content": "hello"}]),
        )
        check(error.param == "messages" and error.type == "invalid_request_error", error.body)
        misspelt = {"questions": [{"id": "urgent", "type": "bolean"}]}
        error = refused(
            openai.BadRequestError,
            400,
            "invalid_schema",
            lambda: one.chat.completions.create(model="demo-model", messages=messages(misspelt)),
        )
        check("urgent" in error.body["message"] and "bolean" in error.body["message"], error.body)
        refused(openai.NotFoundError, 404, "not_found", lambda: one.files.list())
        long = "word " * 100_000
        refused(
            openai.APIStatusError,
            413,
            "context_length_exceeded",
            lambda: one.chat.completions.create(model="demo-model", messages=messages(state=long)),
        )
        slow = {**SCHEMA, "samples": 32, "isolate": True}
        refused(
            openai.InternalServerError,
            504,
            "deadline_exceeded",
            lambda: one.chat.completions.create(
                model="demo-model",
                messages=messages(slow, "word " * 500),
                extra_headers={"X-Request-Timeout-Ms": "1"},
            ),
        )


def a_full_queue():
    """More clients than the queue has places: some are refused and told when to come back, the others are answered."""
    with Server("--queue", "4") as server:
        one = client(server)
        schema = {**SCHEMA, "samples": 4}
        errors, answered, stop = [], [], threading.Event()

        def ask():
            while not stop.is_set():
                try:
                    answered.append(one.chat.completions.create(model="demo-model", messages=messages(schema)))
                except openai.APIStatusError as error:
                    errors.append(error)
                    stop.set()

        threads = [threading.Thread(target=ask) for _ in range(16)]
        for thread in threads:
            thread.start()
        stop.wait(timeout=30)
        stop.set()
        for thread in threads:
            thread.join()
        check(errors, f"{len(answered)} answers and no refusal in 30 s")

        def first():
            raise errors[0]

        error = refused(openai.RateLimitError, 429, "queue_full", first)
        check(error.response.headers["retry-after"] == "1", error.response.headers)
        check(all(type(error) is openai.RateLimitError for error in errors), errors)


def a_server_that_loads():
    """While the model loads there is a 503 that the client's own retries wait out. The tokenizer comes through a pipe that stays
    shut until the refusal was seen."""
    with tempfile.TemporaryDirectory(prefix="dgemma-loading.") as folder:
        for file in DEMO_MODEL.iterdir():
            if file.name != "tokenizer.json":
                (Path(folder) / file.name).symlink_to(file)
        pipe = Path(folder) / "tokenizer.json"
        os.mkfifo(pipe)
        with Server(model=folder, wait=False) as server:
            error = refused(openai.InternalServerError, 503, "not_ready", lambda: decide(client(server)))
            check(error.response.headers["retry-after"] == "2", error.response.headers)
            replies = []
            patient = threading.Thread(target=lambda: replies.append(decide(client(server, retries=20))))
            patient.start()
            time.sleep(0.2)
            pipe.write_bytes((DEMO_MODEL / "tokenizer.json").read_bytes())
            patient.join(timeout=60)
            check(replies, "the client gave up although the server became ready")
            check_decision(replies[0].choices[0].message.content)
            print("openai client: its own retries wait for the model")


decisions_and_refusals()
a_full_queue()
a_server_that_loads()
print(f"openai client: version {openai.__version__}: all as expected")
