#!/usr/bin/env bash
# Runs dgem against llama.cpp's own server, as an OpenAI-compatible server that makes no decisions (llama_server.py says how the right
# answers are known). Called by .ci/run after `make demo`.
# Usage: scripts/llama_server.sh [--record FILE]. Needs bin/, python3 with venv and, the first time, PyPI.
set -euo pipefail
. "$(dirname "$0")/python.sh"
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

python_environment llama_server
"$environment/bin/python" "$(dirname "$0")/llama_server.py" "$@"
