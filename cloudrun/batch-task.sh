#!/usr/bin/env bash
# One task of the job in cloudrun/batch-job.yaml: decides its share of FOLDER/rows.jsonl (or rows.csv) and leaves
# FOLDER/results-SHARD.jsonl. `dgem` makes its output safe every second, which on a mounted bucket would send the whole file
# each time: so it writes to the container's own disk, and the file is copied every minute and when the task ends or is stopped.
# Usage: dgem-batch-task FOLDER ARGUMENTS-OF-dgem-batch
set -euo pipefail
[ $# -ge 1 ] && [ -d "$1" ] || {
  echo "usage: dgem-batch-task FOLDER ARGUMENTS-OF-dgem-batch" >&2
  exit 2
}
folder=$1
shift
shard=${CLOUD_RUN_TASK_INDEX:-0}
rows=$folder/rows.jsonl
[ -f "$rows" ] || rows=$folder/rows.csv
[ -f "$rows" ] || {
  echo "error: $folder holds neither rows.jsonl nor rows.csv" >&2
  exit 2
}
work=$(mktemp -d)
result=$work/results-$shard.jsonl
kept=$folder/results-$shard.jsonl

# An object appears when it is closed: whoever reads it sees the old file or the new one, never a part.
# shellcheck disable=SC2329 # the trap calls it
keep() {
  local code=$?
  trap '' TERM INT
  kill "$copier" 2>/dev/null && wait "$copier" 2>/dev/null || true
  if [ -s "$result" ]; then cp "$result" "$kept"; fi
  rm -rf "$work"
  exit "$code"
}
copier=
trap keep EXIT

if [ -f "$kept" ]; then cp "$kept" "$result"; fi
dgem batch -i "$rows" -o "$result" --resume "$@" &
child=$!
while sleep "${KEEP_SECONDS:-60}"; do if [ -s "$result" ]; then cp "$result" "$kept"; fi; done >/dev/null 2>&1 3>&- &
copier=$!
# The first signal lets dgem finish what is in flight. The second ends it, for the
# platform kills everything after ten. A signal also ends the `wait`, which then says nothing about dgem.
signalled=
# shellcheck disable=SC2329 # the trap calls it
stop() {
  signalled=1
  kill -TERM "$child" 2>/dev/null || true
  (sleep "${STOP_SECONDS:-6}" && kill -TERM "$child") >/dev/null 2>&1 3>&- &
}
trap stop TERM INT
code=0
wait "$child" || code=$?
while [ -n "$signalled" ]; do
  signalled=
  code=0
  wait "$child" || code=$?
done
# 6: some rows failed. They are in the file with their reasons; trying the task again asks only for them.
exit "$code"
