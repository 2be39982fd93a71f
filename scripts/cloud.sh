# Sourced by the scripts of cloudrun/ and gce/: names of what they make, and the two ways to call gcloud.
# `query` asks, `apply` changes. With DRY_RUN=1 both only print their command, and `query` fails as if nothing existed, so
# that what is printed is what would run in an empty project. Read next: cloudrun/deploy.sh.
# shellcheck shell=bash disable=SC2034

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

say() { printf '%s\n' "$*" >&2; }

# fail MESSAGE HINT: a mistake of the caller.
fail() {
  say "error: $1"
  say "hint: $2"
  exit 2
}

# on NAME VALUE: whether a switch is on.
on() {
  case $2 in
    1 | yes | true | on) return 0 ;;
    '' | 0 | no | false | off) return 1 ;;
    *) fail "$1=$2 is neither on nor off" "$1=1 or $1=0" ;;
  esac
}

dry=
! on DRY_RUN "${DRY_RUN:-}" || dry=1
case ${1:-} in
  '') ;;
  --dry-run) dry=1 ;;
  *)
    echo "error: $(basename "$0") takes no argument but --dry-run, not '$1'" >&2
    echo "hint: settings are variables of the environment; docs/deploy.md lists them" >&2
    exit 2
    ;;
esac
# A question of gcloud's own would wait for an answer that nobody sees asked.
export CLOUDSDK_CORE_DISABLE_PROMPTS=1
# Commands are printed here even where the output of `query` is captured.
exec 3>&1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
# From `query`, which mostly runs in a subshell and cannot end the script otherwise.
trap 'exit 1' USR1

# One command, quoted where it must be, so that it can be pasted into a shell.
quoted() {
  local word line=
  for word in "$@"; do
    case $word in '' | *[!A-Za-z0-9_./:,@%+=^~-]*) printf -v word '%q' "$word" ;; esac
    line+=" $word"
  done
  printf '%s\n' "${line# }"
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
  [ -n "${go_on:-}" ] || kill -USR1 $$
  return 2
}

apply() {
  set -- gcloud "$@" "--project=$GCP_PROJECT"
  if [ -n "$dry" ]; then
    quoted "$@" >&3
    return 0
  fi
  say "+ $(quoted "$@")"
  "$@"
}

# A role for an account that was made a moment ago: the first tries may find that it does not exist.
bind() {
  local try
  for try in 1 2 3 4 5; do
    ! apply "$@" >/dev/null || return 0
    [ "$try" -eq 5 ] || sleep "${BIND_WAIT_SECONDS:-5}"
  done
  say "error: the role could not be given"
  return 1
}

# The project must be named: a default of gcloud's own could be anybody's.
need_project() {
  [ -n "${GCP_PROJECT:-}" ] || fail "GCP_PROJECT is not set" "export GCP_PROJECT=your-project-id"
  if [ -z "$dry" ] && ! command -v gcloud >/dev/null; then
    fail "gcloud is not installed" "install the Google Cloud CLI, then run: gcloud auth login"
  fi
}

# need_tool NAME: a program that only a real run needs.
need_tool() {
  [ -n "$dry" ] || command -v "$1" >/dev/null || fail "$1 is not installed" "install the package $1"
}

# Sets what depends on GPU: its name at Cloud Run, compute capability of the image, processors, memory, regions.
need_gpu() {
  case ${GPU:-l4} in
    l4)
      gpu_type=nvidia-l4 capability=80 cpus=8 memory=32Gi
      regions='asia-southeast1 europe-west1 europe-west4 us-east4' invited='us-central1 asia-south1'
      ;;
    rtx)
      gpu_type=nvidia-rtx-pro-6000 capability=120 cpus=20 memory=80Gi
      regions='asia-southeast1 europe-west4 us-central1' invited='asia-south2'
      ;;
    *) fail "GPU=$GPU is not known" "GPU=l4 (NVIDIA L4, 24 GB) or GPU=rtx (RTX PRO 6000, 96 GB)" ;;
  esac
}

need_region() {
  [ -n "${GCP_REGION:-}" ] || fail "GCP_REGION is not set" "export GCP_REGION=europe-west4, or another; docs/deploy.md lists those with a GPU"
}

# The region must have the GPU: Cloud Run says so only after minutes.
need_gpu_region() {
  local list="$regions; by invitation: $invited"
  need_region
  case " $regions " in *" $GCP_REGION "*) return 0 ;; esac
  case " $invited " in
    *" $GCP_REGION "*) say "note: $gpu_type is given in $GCP_REGION by invitation; elsewhere: $regions" ;;
    *) fail "Cloud Run has no $gpu_type in $GCP_REGION" "it has it in: $list" ;;
  esac
}

# Names of everything there is in one project and region. GCP_REGION must be set.
name_things() {
  registry=$GCP_REGION-docker.pkg.dev
  image=$registry/$GCP_PROJECT/dgem/dgemma
  weights_bucket=${WEIGHTS_BUCKET:-$GCP_PROJECT-dgem-weights-$GCP_REGION}
  build_bucket=${BUILD_BUCKET:-$GCP_PROJECT-dgem-build-$GCP_REGION}
  batch_bucket=${BATCH_BUCKET:-$GCP_PROJECT-dgem-batch-$GCP_REGION}
  local bucket
  for bucket in "$weights_bucket" "$build_bucket" "$batch_bucket"; do
    [ ${#bucket} -le 63 ] ||
      fail "the bucket name $bucket has more than 63 characters" "set WEIGHTS_BUCKET, BUILD_BUCKET and BATCH_BUCKET"
  done
}

# account NAME: the address of a service account of ours.
account() { printf '%s@%s.iam.gserviceaccount.com' "$1" "$GCP_PROJECT"; }

# The revision that images are tagged with. What is sent to be built (.gcloudignore) and not committed has no name.
name_revision() {
  local path sent=()
  revision=${DGEM_REVISION:-}
  [ -z "$revision" ] || return 0
  revision=$(git -C "$root" rev-parse --short=12 HEAD)
  while read -r path; do sent+=("$path"); done < <(sed -n 's|^!/||p' "$root/.gcloudignore")
  if [ -n "$(git -C "$root" status --porcelain -- "${sent[@]}")" ]; then
    on ALLOW_DIRTY "${ALLOW_DIRTY:-}" || fail "there are changes that are not committed, so the revision $revision is not what would be built" \
      "commit them, or set ALLOW_DIRTY=1 to use the tag $revision-dirty"
    revision=$revision-dirty
  fi
}

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
  query iam service-accounts describe "$(account "$1")" '--format=value(email)' >/dev/null ||
    apply iam service-accounts create "$1" "--display-name=$2"
}

# Whether this project has the bucket. Names are the whole world's: to describe one could find somebody else's.
own_bucket() { [ -n "$(query storage buckets list "--filter=name=$1" '--format=value(name)')" ]; }

# Without soft delete, which keeps what was deleted, and its costs, for a week.
ensure_bucket() {
  own_bucket "$1" || {
    apply storage buckets create "gs://$1" "--location=$GCP_REGION" --uniform-bucket-level-access --public-access-prevention --soft-delete-duration=0
    apply storage buckets update "gs://$1" --update-labels=app=dgem
  }
}

# allow_bucket BUCKET ACCOUNT ROLE: on this bucket alone; roles of the project are left as they are.
allow_bucket() {
  bind storage buckets add-iam-policy-binding "gs://$1" "--member=serviceAccount:$(account "$2")" "--role=$3"
}

# The weights: what the hub calls them, and the commit that is staged.
name_weights() {
  repo=${REPO:-nvidia/diffusiongemma-26B-A4B-it-NVFP4}
  case $repo in
    */*/* | /* | */ | *[!A-Za-z0-9._/-]*) fail "REPO=$repo is no repository" "write OWNER/NAME" ;;
    */*) model=${repo##*/} ;;
    *) fail "REPO=$repo is no repository" "write OWNER/NAME" ;;
  esac
  case ${REVISION:-} in
    '') ;;
    *[!0-9a-f]*) fail "REVISION=$REVISION is no commit" "a branch moves; give the 40 hexadecimal digits, or leave REVISION out" ;;
    *) [ ${#REVISION} -eq 40 ] || fail "REVISION=$REVISION is no whole commit" "give all 40 hexadecimal digits" ;;
  esac
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
