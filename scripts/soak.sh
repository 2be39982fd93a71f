#!/usr/bin/env bash
# Lets many clients, good and bad, loose on a server of its own for a while, and checks that it bears them: see soak.py.
# Usage: scripts/soak.sh [SECONDS [CLIENTS]], by default 600 seconds and 32 clients. Called by .ci/run for 20 seconds after
# `make build`. Needs python3 and nothing else.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")"
exec python3 soak.py --seconds "${1:-600}" --clients "${2:-32}"
