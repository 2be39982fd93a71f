#!/usr/bin/env bash
# Runs the public conformance suite of POST /v1/systemone against dgemma-server on the demo checkpoint, and against it with
# an API key: every requirement must pass in one of the two runs and fail in none. Called by .ci/run after `make demo`.
# Usage: scripts/jevcompat.sh [SERVER], by default bin/dgemma-server. Needs python3 with venv and, the first time, PyPI.
set -euo pipefail
. "$(dirname "$0")/python.sh"
root=$(CDPATH='' cd "$(dirname "$0")/.." && pwd)
server=${1:-$root/bin/dgemma-server}
key=demo-key-of-the-conformance-run
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
work=$(mktemp -d -t dgemma-jevcompat.XXXXXX)
pid=

stop() {
  [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
  [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
  pid=
}
trap 'stop; rm -rf "$work"' EXIT

give_up() {
  echo "jevcompat: $1" >&2
  [ ! -s "$work/log" ] || {
    echo "the server said:" >&2
    tail -n 40 "$work/log" >&2
  }
  exit 1
}

[ -x "$server" ] || give_up "no program at $server; run \`make build\` or pass its path"

python_environment jevcompat || give_up "no suite to run"

ready() {
  "$environment/bin/python" -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1] + "/readyz", timeout=5)' "$1" 2>/dev/null
}

# Starts the server and runs the suite; its report goes to $work/NAME.json. Arguments: NAME, then those of the suite.
run() {
  local name=$1 url=
  shift
  env -u RUST_LOG -u DGEMMA_ADDR "$server" --model "$root/fixtures/demo-model" --addr 127.0.0.1:0 >"$work/log" 2>&1 &
  pid=$!
  for _ in $(seq 1 300); do
    kill -0 "$pid" 2>/dev/null || give_up "the server ended early"
    url=$(sed -n 's/.*listening on \(http:[^ ]*\).*/\1/p' "$work/log" | head -n 1)
    [ -z "$url" ] || ! ready "$url" || break
    sleep 0.1
  done
  { [ -n "$url" ] && ready "$url"; } || give_up "the server was not ready after 30 seconds"
  "$environment/bin/jevcompat" test --json "$work/$name.json" "$@" "$url" >"$work/$name.txt" 2>&1 ||
    {
      cat "$work/$name.txt" >&2
      give_up "the run $name is not conformant"
    }
  stop
}

run open
DGEMMA_API_KEYS=$key run keyed --key "$key"

"$environment/bin/python" - "$work/open.json" "$work/keyed.json" <<'END'
import json, sys
runs = [json.load(open(path)) for path in sys.argv[1:]]
status = {}
for run in runs:
    for result in run["results"]:
        status.setdefault((result["level"], result["id"]), []).append(result["status"])
passed = {key for key, found in status.items() if "pass" in found and "fail" not in found}
for level in ("MUST", "SHOULD"):
    keys = [key for key in status if key[0] == level]
    print(f"jevcompat: {len(passed.intersection(keys))} of {len(keys)} {level} pass")
# The suite can see errors.shape only where an unknown model is refused; this server has one model and takes every name.
# tests/systemone.rs checks that shape.
missing = sorted(key for key in set(status) - passed if key[1] != "errors.shape" or "fail" in status[key])
for level, name in missing:
    print(f"jevcompat: {level} {name}: {', '.join(status[level, name])}", file=sys.stderr)
sys.exit(bool(missing))
END
