#!/bin/sh
# Measures `dgem batch` against a server without a model: rows a second, the most memory it held, its CPU time.
#
# Usage: scripts/bench/batch.sh [DGEM] [ROWS] [JOBS]      default: bin/dgem 10000 64
# Needs python3 for the server. Everything it writes is in a folder of its own and removed.
set -eu
cd "$(dirname "$0")/../.."
dgem=${1:-bin/dgem} rows=${2:-10000} jobs=${3:-64}

folder=$(mktemp -d)
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
python3 scripts/bench/fake_server.py "$port" >"$folder/server" &
server=$!
trap 'kill "$server" 2>/dev/null; rm -rf "$folder"' EXIT INT TERM
until grep -q ready "$folder/server"; do
  kill -0 "$server"
  sleep 0.1
done

python3 - "$rows" >"$folder/rows.jsonl" <<'PYTHON'
import json, sys
for row in range(int(sys.argv[1])):
    text = f"Ticket {row}: I was billed twice for my annual renewal and the portal shows an error. " * 3
    print(json.dumps({"id": f"row-{row}", "ticket": text, "expected_team": ["billing", "support"][row % 2]}))
PYTHON

# The kernel keeps the most memory a process ever had until its parent has waited for it.
python3 - "$dgem" batch -u "http://127.0.0.1:$port/v1" -t support_triage -i "$folder/rows.jsonl" -o "$folder/out.jsonl" -j "$jobs" <<'PYTHON'
import resource, subprocess, sys
status = subprocess.run(sys.argv[1:]).returncode
usage = resource.getrusage(resource.RUSAGE_CHILDREN)
print(f"most memory {usage.ru_maxrss / 1024:.0f} MiB, CPU time {usage.ru_utime + usage.ru_stime:.2f} s")
sys.exit(status)
PYTHON
test "$(wc -l <"$folder/out.jsonl")" -eq "$rows"
