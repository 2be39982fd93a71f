#!/usr/bin/env bash
# Measures the client's own time: from the start of the process to the request on the wire, and of the whole run.
# Usage: scripts/bench/client.sh [RUNS]   (needs python3 and a release build: make build)
set -euo pipefail
cd "$(dirname "$0")/../.."
exec python3 scripts/bench/client.py "${DGEM:-bin/dgem}" "${1:-200}"
