#!/usr/bin/env bash
# Runs two clients that know nothing of ours against dgemma-server on the demo checkpoint: the official OpenAI package for Python
# (openai_client.py) and curl with the command of the user's guide (guide_example.sh). Called by .ci/run after `make build`.
# Usage: scripts/openai_client.sh. Needs python3 with venv, curl, jq and, the first time, PyPI.
set -euo pipefail
. "$(dirname "$0")/python.sh"
. "$(dirname "$0")/server.sh"
for program in curl jq; do
  command -v "$program" >/dev/null || {
    echo "the guide's command needs $program; install it" >&2
    exit 1
  }
done
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

python_environment openai_client
cargo build --quiet --manifest-path "$root/Cargo.toml" --workspace --example scripted
"$environment/bin/python" "$root/scripts/openai_client.py"

start_server "$root/fixtures/demo-model"
guide=$(<"$root/scripts/guide_example.sh")
case $guide in *http://127.0.0.1:8080/*) ;; *)
  echo "guide_example.sh names another address" >&2
  exit 1
  ;;
esac
reply=$(bash -euo pipefail -c "${guide//http:\/\/127.0.0.1:8080/$url}")
jq -e '.choices[0].message.content | fromjson | .answers
  | (.urgent.probabilities | keys == ["no", "yes"]) and (.team.probabilities | keys_unsorted == ["billing", "support", "engineering"])
    and (.sentiment.level | IN("calm", "frustrated", "furious"))' <<<"$reply" >/dev/null ||
  {
    echo "the guide's command got another reply:" >&2
    echo "$reply" >&2
    exit 1
  }
echo "guide: curl runs the command as it stands and gets its three answers"
