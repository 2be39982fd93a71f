#!/usr/bin/env bash
# Runs every benchmark of dgem against a checkpoint and leaves receipts and pages in a new folder; each receipt is looked at again.
# Usage: scripts/bench/suites.sh FOLDER [CHECKPOINT [CASES]]   (needs both programs: make build; default: all cases on the demo model)
set -euo pipefail
. "$(dirname "$0")/../server.sh"
[ $# -ge 1 ] || {
  echo "usage: $0 FOLDER [CHECKPOINT [CASES]]" >&2
  exit 2
}
folder=$1
[ ! -e "$folder" ] || {
  echo "$folder exists; receipts are never overwritten" >&2
  exit 2
}
limit=${3:-}
start_server "${2:-$root/fixtures/demo-model}"

# 6: some cases failed, and the receipt says which.
dgem() {
  "$root/bin/dgem" "$@" >/dev/null || [ $? = 6 ]
}

run() { # NAME COMMAND...
  local name=$1
  shift
  echo "dgem $*"
  dgem "$@" ${limit:+-n "$limit"} -u "$url/v1" -o "$folder/$name.json" --html "$folder/$name.html"
  dgem "$1" --from-receipt "$folder/$name.json"
}

run bench bench --mode both
run bench-calibration bench-calibration
run bench-calibration-self-think bench-calibration --cascade-from "$folder/bench-calibration.json" --cascade-self-think 64 --cascade-threshold 0%
run bench-permutation bench-permutation
run bench-intents-banking77 bench-intents --dataset banking77
run bench-intents-clinc150 bench-intents --dataset clinc150
run bench-ecotone bench-ecotone
