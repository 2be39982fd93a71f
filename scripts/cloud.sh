# Sourced by the scripts of cloudrun/ and gce/: the two ways to call gcloud, and the things of the cloud that several of them
# need. `query` asks, `apply` changes. With DRY_RUN=1 both only print their command, and `query` fails as if nothing existed, so
# that what is printed is what would run in an empty project. Read next: scripts/settings.sh, then cloudrun/deploy.sh.
# shellcheck shell=bash

root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }

# fail MESSAGE HINT: a mistake of the caller.
fail() {
  say "error: $1"
  say "hint: $2"
  exit 2
}

# broken MESSAGE HINT: something that was right to ask for did not work.
broken() {
  say "error: $1"
  say "hint: $2"
  return 1
}
again='the reason stands above. What was made stays and is found again: mend the reason, then run the same again'

# One command, quoted where it must be, so that it can be pasted into a shell.
quoted() {
  local word line=
  for word in "$@"; do
    case $word in '' | *[!A-Za-z0-9_./:,@%+=^~-]*) printf -v word '%q' "$word" ;; esac
    line+=" $word"
  done
  printf '%s\n' "${line# }"
}

. "$root/scripts/settings.sh"

dry=
! on DRY_RUN "${DRY_RUN:-}" || dry=1
case ${1:-} in
  '') ;;
  --dry-run) dry=1 ;;
  *) fail "$(basename "$0") takes no argument but --dry-run, not '$1'" "settings are variables of the environment; docs/deploy.md lists them" ;;
esac
[ -z "$dry" ] || say "dry run: commands are printed, as in an empty project, and none is run"
# A question of gcloud's own would wait for an answer that nobody sees asked.
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
# Commands are printed here even where the output of `query` is captured.
exec 3>&1
scratch=$(mktemp -d) || fail "no temporary folder can be made in ${TMPDIR:-/tmp}" "name another with TMPDIR"
trap 'rm -rf "$scratch"' EXIT
trap 'stopped 130' INT
trap 'stopped 143' TERM
# From `query`, which mostly runs in a subshell and cannot end the script otherwise.
trap 'exit 1' USR1

stopped() {
  say "stopped. What was made stays, and what has begun in the cloud goes on. Run the same again, or take it down: make cloudrun-teardown, make gce-teardown"
  exit "$1"
}

# Fails with 1 where the thing is not there. Any other error is shown, and ends the script unless `go_on` is set.
query() {
  local errors=$scratch/errors
  set -- gcloud "$@" "--project=$GCP_PROJECT"
  if [ -n "$dry" ]; then
    quoted "$@" >&3
    return 1
  fi
  ! "$@" 2>"$errors" || return 0
  ! grep -qE 'NOT_FOUND|not found|[^0-9]404[^0-9]|Cannot find|matched no objects' "$errors" || return 1
  cat "$errors" >&2
  if [ -z "${go_on:-}" ]; then
    broken "this question failed: $(quoted "$@")" "$again" || kill -USR1 $$
  fi
  return 2
}

# shown FILE: what stands in a file that a command names, where a dry run only prints the command and then deletes the file.
shown() {
  [ -z "$dry" ] || {
    say "$1 holds:"
    sed 's/^/  /' "$1" >&2
  }
}

# there WORD…: whether a question finds something.
there() { query "$@" >/dev/null; }

# Tries a change once, and says nothing more if it fails.
attempt() {
  set -- gcloud "$@" "--project=$GCP_PROJECT"
  if [ -n "$dry" ]; then
    quoted "$@" >&3
    return 0
  fi
  say "+ $(quoted "$@")"
  "$@"
}

failed_command() { broken "this command failed: $(quoted gcloud "$@")" "$again"; }

apply() { attempt "$@" || failed_command "$@"; }

# ensure QUESTION… -- WORD…: what the question does not find is made. Somebody else may make it at the same moment.
ensure() {
  local question=()
  while [ "$1" != -- ]; do
    question+=("$1")
    shift
  done
  shift
  "${question[@]}" || attempt "$@" || "${question[@]}" || failed_command "$@"
}

# A role for an account that was made a moment ago: the first tries may find that it does not exist.
bind() {
  local try
  for try in 1 2 3 4 5; do
    ! attempt "$@" >/dev/null || return 0
    [ "$try" -eq 5 ] || sleep "${BIND_WAIT_SECONDS:-5}"
  done
  failed_command "$@"
}

# account NAME: the address of a service account of ours.
account() { printf '%s@%s.iam.gserviceaccount.com' "$1" "$GCP_PROJECT"; }

# image_digest TAG: sets `digest` (sha256:…), and fails where there is no such image. A dry run does not know it.
image_digest() {
  digest=$(query artifacts docker images describe "$image:$1" '--format=value(image_summary.digest)') || digest=
  [ -z "$dry" ] || digest=sha256:DIGEST
  [ -n "$digest" ] || fail "there is no image $image:$1" "build it with: make cloudrun-build (its tag is the git revision; DGEM_REVISION names another)"
}

enable_services() {
  local services=()
  local service
  for service in "$@"; do services+=("$service.googleapis.com"); done
  apply services enable "${services[@]}"
}

ensure_account() {
  ensure there iam service-accounts describe "$(account "$1")" '--format=value(email)' -- \
    iam service-accounts create "$1" "--display-name=$2"
}

need_secret() {
  there secrets describe "$1" '--format=value(name)' || [ -n "$dry" ] ||
    fail "there is no secret $1" "make it with: gcloud secrets create $1 --data-file=- --labels=app=dgem --project=$GCP_PROJECT (the secret on standard input)"
}

# Whether this project has the bucket. Names are the whole world's: to describe one could find somebody else's.
own_bucket() { [ -n "$(query storage buckets list "--filter=name=$1" '--format=value(name)')" ]; }

# Without soft delete, which keeps what was deleted, and its costs, for a week. The label, by which teardown knows a bucket as
# ours, cannot be given when it is made: one of our names gets it always, for an earlier run may have been stopped in between.
ensure_bucket() {
  local ours=
  case $1 in "$GCP_PROJECT"-dgem-*) ours=1 ;; *) own_bucket "$1" || ours=1 ;; esac
  ensure own_bucket "$1" -- storage buckets create "gs://$1" "--location=$GCP_REGION" --uniform-bucket-level-access --public-access-prevention \
    --soft-delete-duration=0
  [ -z "$ours" ] || apply storage buckets update "gs://$1" --update-labels=app=dgem
}

# allow_bucket BUCKET ACCOUNT ROLE: on this bucket alone; roles of the project are left as they are.
allow_bucket() {
  bind storage buckets add-iam-policy-binding "gs://$1" "--member=serviceAccount:$(account "$2")" "--role=$3"
}

# Sets `commit`: REVISION, or the only commit of the model whose manifest is in the bucket.
staged_commit() {
  local found=
  if own_bucket "$weights_bucket" || [ -n "$dry" ]; then
    found=$(query storage ls "gs://$weights_bucket/${REVISION:-*}/$model/MANIFEST.json") || found=
  fi
  if [ -n "$dry" ]; then
    commit=${REVISION:-COMMIT}
    return
  fi
  [ -n "$found" ] || fail "gs://$weights_bucket has no complete copy of $model${REVISION:+ at $REVISION}" "stage it with: make cloudrun-stage"
  [ "$(wc -l <<<"$found")" -eq 1 ] || fail "gs://$weights_bucket has several commits of $model" "choose one with REVISION:
$found"
  commit=${found#"gs://$weights_bucket/"}
  commit=${commit%%/*}
}
