"""The official OpenAI client against dgemma-server on the demo checkpoint: decisions, conversations, streams, and every kind of refusal.

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

from server import DEMO_MODEL, ROOT, Server

SCRIPTED = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "debug" / "examples" / "scripted"
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
            "invalid_parameter",
            lambda: one.chat.completions.create(model="demo-model", messages=[{"role": "user", "content": "hello"}], n=3),
        )
        check(error.param == "n" and error.type == "invalid_request_error", error.body)
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


WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Weather of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}
# The seed of a request is the number of its reply.
SCRIPT = [
    "Hello, 東京 🙂!",
    "<|channel>thought\nTwo and two.\n<channel|>Four.",
    'Let me see.<|tool_call>call:weather{city:<|"|>Köln {"x"}<|"|>,days:2}<tool_call|><|tool_call>call:weather{city:<|"|>Bonn<|"|>,days:null}<tool_call|>',
]


def conversations():
    """Text, thoughts and calls whose content is known: the server has a script in place of a model."""
    script = {"DGEMMA_SCRIPT": json.dumps(SCRIPT)}
    with Server(program=SCRIPTED, environment=script) as server:
        one = client(server)
        history = [{"role": "user", "content": "Hi"}]

        def ask(seed, stream=False, **settings):
            return one.chat.completions.create(model="scripted:think", messages=history, seed=seed, stream=stream, **settings)

        reply = ask(0).choices[0]
        check(reply.message.content == SCRIPT[0] and reply.finish_reason == "stop", reply)
        chunks = list(ask(0, stream=True))
        pieces = [choice.delta.content for chunk in chunks for choice in chunk.choices if choice.delta.content]
        check("".join(pieces) == SCRIPT[0] and len(pieces) > 1, pieces)
        check(ask(0, max_tokens=1).choices[0].finish_reason == "length")

        message = ask(1).choices[0].message
        check((message.reasoning_content, message.content) == ("Two and two.", "Four."), message)

        reply = ask(2, tools=[WEATHER]).choices[0]
        calls = [(call.function.name, json.loads(call.function.arguments)) for call in reply.message.tool_calls]
        expected = [("weather", {"city": 'Köln {"x"}', "days": 2}), ("weather", {"city": "Bonn", "days": None})]
        check(calls == expected and reply.finish_reason == "tool_calls" and reply.message.content == "Let me see.", reply)
        with one.chat.completions.stream(model="scripted", messages=history, seed=2, tools=[WEATHER]) as stream:
            streamed = stream.get_final_completion().choices[0]
        found = [(call.function.name, json.loads(call.function.arguments)) for call in streamed.message.tool_calls]
        check(found == expected and streamed.finish_reason == "tool_calls", streamed)
        history.append(reply.message.model_dump(exclude_none=True))
        for call in reply.message.tool_calls:
            history.append({"role": "tool", "tool_call_id": call.id, "content": "dry"})
        check(ask(0, tools=[WEATHER]).choices[0].message.content == SCRIPT[0])
        print("openai client: text, thoughts, calls, streams of them, and a round of tools")

    # The demo checkpoint knows no words; the form must be right all the same.
    with Server() as server:
        settings = {"messages": [{"role": "user", "content": "Write something."}], "seed": 5, "max_tokens": 40}
        reply = client(server).chat.completions.create(model="demo-model", **settings)
        chunks = list(client(server).chat.completions.create(model="demo-model", stream=True, **settings))
        text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
        check(text == (reply.choices[0].message.content or "") and reply.usage.completion_tokens <= 40, text, reply)


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
conversations()
a_full_queue()
a_server_that_loads()
print(f"openai client: version {openai.__version__}: all as expected")
