#!/usr/bin/env bash
# Runs every fuzz target of fuzz/ for so many seconds each, in one thread, and prints how often it ran and what broke.
# Usage: scripts/fuzz.sh [SECONDS [TARGET…]], by default 15 seconds and all targets. Needs cargo-fuzz, which it installs from
# the package registry into the cache the first time. Inputs that were found are kept there too, so later runs begin with them; an
# input that breaks something lies in fuzz/artifacts/TARGET afterwards, and the script fails.
set -euo pipefail
CDPATH='' cd "$(dirname "$0")/.."
seconds=${1:-15}
[ $# -eq 0 ] || shift
targets=("$@")
[ ${#targets[@]} -gt 0 ] || targets=(schema decide chat systemone)
cargo_fuzz_version=0.13.2

cache=${XDG_CACHE_HOME:-$HOME/.cache}/dgem/fuzz
target_dir=$cache/target
if [ ! -x "$cache/cargo-fuzz-$cargo_fuzz_version/bin/cargo-fuzz" ]; then
  CARGO_TARGET_DIR=$cache/install cargo install --quiet --locked --version "$cargo_fuzz_version" --root "$cache/cargo-fuzz-$cargo_fuzz_version" cargo-fuzz
  rm -rf "$cache/install"
fi
export PATH=$cache/cargo-fuzz-$cargo_fuzz_version/bin:$PATH

# Our own crates have no unsafe code, so the address sanitizer would find nothing there; without it a stable toolchain will do.
fuzz=(cargo fuzz)
options=(--sanitizer none --target-dir "$target_dir")
unset CARGO_TARGET_DIR
"${fuzz[@]}" build "${options[@]}"

status=0
for target in "${targets[@]}"; do
  mkdir -p "$cache/corpus/$target"
  log=$cache/$target.log
  nice -n 19 "${fuzz[@]}" run "${options[@]}" "$target" "$cache/corpus/$target" "fuzz/corpus/$target" -- \
    -max_total_time="$seconds" -max_len=4096 -timeout=20 -rss_limit_mb=2048 -dict=fuzz/json.dict -print_final_stats=1 \
    >"$log" 2>&1 || {
    status=1
    tail -n 40 "$log"
  }
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  crashes=$(find "fuzz/artifacts/$target" -type f 2>/dev/null | wc -l)
  echo "fuzz: $target: ${executions:-no} executions in $seconds s, $crashes inputs that break something"
done
exit $status
