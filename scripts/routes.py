"""Prints which route answers whom: every route of /openapi.json, and a path that is none, asked without a key, with a wrong and with a right one.

Usage: `python3 scripts/routes.py` after `make build`. Fails when a route but /livez and /readyz answers without the right key.
"""

import argparse
import json
import sys

from server import PROGRAM, Server

KEY = "demo-key-of-the-route-table"
OPEN = {"/livez", "/readyz"}
BODIES = {
    "/v1/chat/completions": {
        "messages": [
            {"role": "system", "content": '{"questions": [{"id": "urgent", "type": "boolean"}]}'},
            {"role": "user", "content": "The database is down."},
        ]
    },
    "/v1/systemone": {"state": "The database is down.", "questions": {"urgent": {"type": "noul"}}},
}


def status(server, method, path, headers):
    connection = server.connect()
    try:
        body = json.dumps(BODIES[path]) if path in BODIES else None
        connection.request(method, path, body, {"Content-Type": "application/json", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--program", default=PROGRAM)
    options = parser.parse_args()
    asked = [
        {},
        {"Authorization": "Bearer another-key"},
        {"Authorization": f"Bearer {KEY}"},
        {"X-API-Key": KEY},
    ]
    wrong = []
    with Server(program=options.program, environment={"DGEMMA_API_KEYS": KEY}) as server:
        paths = json.loads(server.get("/openapi.json", {"X-API-Key": KEY})[1])["paths"]
        routes = [(method.upper(), path) for path, item in paths.items() for method in item] + [("GET", "/no/route")]
        print("| route | no key | wrong key | `Authorization: Bearer` | `X-API-Key` |")
        print("|---|---|---|---|---|")
        for method, path in routes:
            found = [status(server, method, path, headers) for headers in asked]
            answer = 404 if path == "/no/route" else 200
            due = [200] * 4 if path in OPEN else [401, 401, answer, answer]
            print(f"| `{method} {path}` | {' | '.join(map(str, found))} |")
            if found != due:
                wrong.append(f"{method} {path}: {found}, not {due}")
    for line in wrong:
        print(f"routes: {line}", file=sys.stderr)
    sys.exit(bool(wrong))


main()
