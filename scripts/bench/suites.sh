#!/usr/bin/env bash
# Runs every benchmark of dgem in full against a checkpoint and leaves receipts and pages in a new folder.
# Usage: scripts/bench/suites.sh FOLDER [CHECKPOINT]   (needs both programs: make build; default checkpoint: the demo model)
set -euo pipefail
. "$(dirname "$0")/../server.sh"
[ $# -ge 1 ] || {
  echo "usage: $0 FOLDER [CHECKPOINT]" >&2
  exit 2
}
folder=$1
[ ! -e "$folder" ] || {
  echo "$folder exists; receipts are never overwritten" >&2
  exit 2
}
start_server "${2:-$root/fixtures/demo-model}"

run() { # NAME COMMAND...
  local name=$1
  shift
  echo "dgem $*"
  "$root/bin/dgem" "$@" -u "$url/v1" -o "$folder/$name.json" --html "$folder/$name.html" >/dev/null || [ $? = 6 ]
}

run bench bench --mode both
run bench-calibration bench-calibration
run bench-calibration-self-think bench-calibration --cascade-from "$folder/bench-calibration.json" --cascade-self-think 64 --cascade-threshold 0%
run bench-permutation bench-permutation
run bench-intents-banking77 bench-intents --dataset banking77
run bench-intents-clinc150 bench-intents --dataset clinc150
run bench-ecotone bench-ecotone
