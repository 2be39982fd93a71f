#!/usr/bin/env bash
# Runs the commands of README.md as they stand there: the server block's checkpoint on a free port, then every client
# block against it. `make demo` and `make test`, the two plain blocks, are run by .ci/run itself. Needs `make build` first.
set -euo pipefail
. "$(dirname "$0")/server.sh"
cd "$root"

# Prints the fenced blocks whose opening line is ```sh KIND.
blocks() {
  awk -v open="\`\`\`sh $1" '$0 == open {inside = 1; next} /^```/ {inside = 0} inside' README.md
}

server=$(blocks server)
client=$(blocks client)
if [ "$server" != 'bin/dgemma-server --model fixtures/demo-model' ] || [ -z "$client" ]; then
  echo "the server block of README.md is not the one this script starts, or there is no client block" >&2
  exit 1
fi
start_server fixtures/demo-model
export DGEM_URL=$url/v1
bash -euxo pipefail -c "${client//http:\/\/127.0.0.1:8080/$url}"
echo
echo "README.md: every command ran"
