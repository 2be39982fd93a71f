# Loaded by every test: a stub of gcloud on the PATH, an environment without settings, and golden files.
# The golden files hold what gcloud is called with, a line each. Bless new ones with BLESS=1 scripts/shell.sh.
# shellcheck shell=bash disable=SC2034,SC2154

root=$(cd "$BATS_TEST_DIRNAME/../.." && pwd)
revision=0123456789ab
digest=sha256:$(printf '%064d' 7)
commit=$(printf '%040d' 5)
temporary=${TMPDIR:-/tmp}
temporary=${temporary%/}
nvfp4=diffusiongemma-26B-A4B-it-NVFP4

# given FILE…: the variables to which these scripts give a default, a name a line.
given() { grep -ohE '[$][{][A-Z][A-Z0-9_]*:?[-+]' "$@" | tr -d '${:+-' | grep -vxE 'HOME|PATH|TMPDIR|LD_LIBRARY_PATH' | sort -u; }

setup() {
  local name settings
  # Those of the programs, of make, and every one that a script gives a default.
  settings=$(given "$root"/cloudrun/*.sh "$root"/gce/*.sh "$root"/scripts/{cloud,settings,teardown,local}.sh)
  for name in $(compgen -e | grep -E '^(DGEM|GCP_|HF_|MAKE|MFLAGS)') $settings; do
    unset "$name"
  done
  export GCP_PROJECT=my-project GCP_REGION=europe-west4 DGEM_REVISION=$revision
  export BIND_WAIT_SECONDS=0 POLL_SECONDS=0
  export CALLS=$BATS_TEST_TMPDIR/calls ANSWERS=$BATS_TEST_TMPDIR/answers KEPT=$BATS_TEST_TMPDIR/kept
  mkdir -p "$KEPT" "$BATS_TEST_TMPDIR/bin"
  : >"$CALLS"
  : >"$ANSWERS"
  export PATH=$BATS_TEST_TMPDIR/bin:$root/scripts/tests/stub:$PATH
}

# answer PATTERN CODE TEXT: what the stub says to a command line; \n and \t in TEXT are read.
answer() { printf '%s\t%s\t%s\n' "$1" "$2" "${3:-}" >>"$ANSWERS"; }

# fake NAME <<'E': a program on the PATH.
fake() {
  cat >"$BATS_TEST_TMPDIR/bin/$1"
  chmod +x "$BATS_TEST_TMPDIR/bin/$1"
}

# small_cloud: from here on gcloud is one that has what was made in it (world/gcloud), in a project with nothing.
small_cloud() {
  export WORLD=$BATS_TEST_TMPDIR/world PATH=$root/scripts/tests/world:$PATH
  mkdir "$WORLD"
}
# What there is in it, a line each.
things() { (cd "$WORLD" && find . -type f ! -path './api/*' ! -path './object/*' | LC_ALL=C sort); }

images_are_built() { answer 'artifacts docker images describe *' 0 "$digest\n"; }
bucket_is_ours() { answer "storage buckets list --filter=name=$1 *" 0 "$1\n"; }
weights_are_staged() {
  bucket_is_ours my-project-dgem-weights-europe-west4
  answer "storage ls gs://*/${1:-$nvfp4}/MANIFEST.json*" 0 "gs://my-project-dgem-weights-europe-west4/$commit/${1:-$nvfp4}/MANIFEST.json\n"
}
subnet_is_there() { answer 'compute networks subnets describe *' 0 'default\n'; }

# Paths of this machine as ROOT and TMP, also where a space in them is quoted.
# shellcheck disable=SC2001 # it replaces each of a class
literal() { sed 's/[][\\.*^$|]/\\&/g' <<<"$1"; }
plain() {
  sed -e "s|$(literal "$(printf '%q' "$root")")|ROOT|g; s|$(literal "$root")|ROOT|g" \
    -e "s|$(literal "$temporary")/[^ ,=]*/|TMP/|g" "$@"
}

# golden NAME: the calls so far are those of golden/NAME.txt.
golden() {
  local file=$BATS_TEST_DIRNAME/golden/$1.txt
  if [ -n "${BLESS:-}" ]; then plain "$CALLS" >"$file"; fi
  diff -u "$file" <(plain "$CALLS")
}

# dry NAME COMMAND…: with DRY_RUN=1 the command prints the calls of the golden file NAME, and makes none. What only a real run
# knows has a name in capitals.
dry() {
  local name=$1
  shift
  : >"$CALLS"
  DRY_RUN=1 "$@" >"$BATS_TEST_TMPDIR/printed" 2>"$BATS_TEST_TMPDIR/told"
  [ ! -s "$CALLS" ]
  diff -u <(sed -e "s/$digest/sha256:DIGEST/g; s/$commit/COMMIT/g; s|https://dgemma-1.run.app|https://SERVICE-URL|g" "$BATS_TEST_DIRNAME/golden/$name.txt") \
    <(plain "$BATS_TEST_TMPDIR/printed" | sed "s/$commit/COMMIT/g")
}

# lacks FILE PATTERN: no line has it. (A plain `! grep` does not fail a test.)
lacks() {
  if grep -E -- "$2" "$1"; then
    echo "in $1 there is: $2"
    return 1
  fi
}

# A program in the background, without the descriptor that bats waits for.
background() { "$@" >"$BATS_TEST_TMPDIR/background" 2>&1 3>&- & }

# refused CODE TEXT COMMAND…: the command ends with this code and says this, with a hint, and changes nothing.
refused() {
  local code=$1 text=$2
  shift 2
  run "$@"
  [ "$status" -eq "$code" ] || { echo "exit $status: $output" && return 1; }
  [[ $output == *"$text"* && $output == *hint:* ]] || { echo "$output" && return 1; }
  lacks "$CALLS" ' (create|deploy|submit|delete|update|replace|execute|rm|cp|add-iam-policy-binding) '
}
