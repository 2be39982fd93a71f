#!/usr/bin/env bash
# Checks everything here that is no Rust: shell scripts (shellcheck, shfmt), Dockerfiles (hadolint), YAML (yamllint), what the
# scripts do (bats, in scripts/tests), and every gcloud command line with gcloud's own parser, where gcloud is. No cloud is
# asked. Called by `make test-scripts` and .ci/run. Needs git, jq, make, curl, python3 with venv and, the first time, PyPI.
# BLESS=1 writes the golden files of scripts/tests/golden anew.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/python.sh"
root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
python_environment shell
export PATH=$environment/bin:$PATH PYTHON=$environment/bin/python
cd "$root"

# What is committed and what is about to be; no `mapfile`, for the bash of a Mac has none.
scripts=() yaml=()
while read -r name; do scripts+=("$name"); done < <(git ls-files -co --exclude-standard '*.sh' .ci/run scripts/tests/stub scripts/tests/world 'scripts/tests/*.bash')
while read -r name; do yaml+=("$name"); done < <(git ls-files -co --exclude-standard '*.yaml' '*.yml')
shellcheck -x -S style "${scripts[@]}"
# Every test is a shell of its own, which shellcheck warns of; `common` is loaded in a way that it does not follow.
shellcheck -x -S style -e SC2013,SC2030,SC2031,SC2154 scripts/tests/*.bats
shfmt -d -i 2 -ci "${scripts[@]}" scripts/tests/*.bats
hadolint cloudrun/*ockerfile
yamllint --strict -c .yamllint.yaml "${yaml[@]}"
echo "shellcheck, shfmt: ${#scripts[@]} scripts; hadolint: 2 Dockerfiles; yamllint: ${#yaml[@]} files"

# The files of tests beside each other, for they wait more than they compute; what each said is shown when it has ended.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export EVERY_CALL=$scratch/calls
pids=() names=()
for file in scripts/tests/*.bats; do
  bats "$file" >"$scratch/${file##*/}" 2>&1 &
  pids+=($!) names+=("${file##*/}")
done
status=0
for at in "${!pids[@]}"; do
  wait "${pids[at]}" || status=1
  echo "${names[at]}:"
  cat "$scratch/${names[at]}"
done
[ "$status" -eq 0 ]

# Every command line that any test has seen, those of docs/deploy.md among them.
if ! command -v gcloud >/dev/null; then
  echo "gcloud's own parser: NOT CHECKED, for the Google Cloud CLI is not installed"
  exit 0
fi
export CLOUDSDK_CONFIG=$scratch/config CLOUDSDK_CORE_DISABLE_PROMPTS=1
# What this version of it has accepted once it need not read again: it takes a fifth of a second for a line.
version=$(cat "$(dirname "$(readlink -f "$(command -v gcloud)")")/../VERSION") || version=unknown
accepted=$environment/accepted-by-gcloud-$version
touch "$accepted"
# Behind `--` stand words for ssh. Of lines that differ only in our own names the first is enough.
sed -E "s/ -- .*//; s#$root#ROOT#g; s#${TMPDIR:-/tmp}/([^ ]|\\\\ )*/#TMP/#g; s#${TMPDIR:-/tmp}/tmp\.[^ ]*#TMP#g; s/([^0-9a-f])[0-9a-f]{12}([^0-9a-f])/\10123456789ab\2/g" "$EVERY_CALL" scripts/tests/golden/*.txt |
  LC_ALL=C sort -u | awk '{shape = $0; gsub(/[^ =]*(dgem|my-project|europe-west4|ROOT|TMP)[^ ]*/, "X", shape)} !seen[shape]++' >"$scratch/all"
grep -vxFf "$accepted" "$scratch/all" >"$scratch/lines" || true
jq -R '{command_string: .}' "$scratch/lines" | jq -s . >"$scratch/commands.json"
echo '[]' >"$scratch/verdicts.json"
[ ! -s "$scratch/lines" ] || gcloud meta lint-gcloud-commands "--commands-file=$scratch/commands.json" >"$scratch/verdicts.json"
jq -r '.[] | select(.success | not) | "\(.command_string)\n  \(.error_message)"' "$scratch/verdicts.json" >"$scratch/wrong"
count=$(jq 'length' "$scratch/verdicts.json")
known=$(($(wc -l <"$scratch/all") - $(wc -l <"$scratch/lines")))
if [ -s "$scratch/wrong" ] || [ "$count" -ne "$(wc -l <"$scratch/lines")" ]; then
  cat "$scratch/wrong"
  echo "gcloud's own parser refuses these command lines, or did not read all" >&2
  exit 1
fi
[ "$version" = unknown ] || cat "$scratch/lines" >>"$accepted"
echo "gcloud's own parser: $count command lines, and $known that it has accepted before"
