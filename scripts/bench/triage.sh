#!/usr/bin/env bash
# Shows what `dgem bench` measures: starts dgemma-server on a checkpoint and a free port, runs the thirty cases, stops it.
# Called by `make bench`, which builds both programs first. Usage: scripts/bench/triage.sh [CHECKPOINT], by default the demo model.
set -euo pipefail
. "$(dirname "$0")/../server.sh"
start_server "${1:-$root/fixtures/demo-model}"
"$root/bin/dgem" bench -u "$url/v1"
