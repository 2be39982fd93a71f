# Sourced by scripts/cloud.sh: what the caller sets, in variables of the environment, and the names that follow from it. A value
# that has another form than it must have is refused here, before anything is asked or made: values stand in command lines, lists
# and YAML, where a comma or a leading dash would mean something else.
# shellcheck shell=bash disable=SC2034,SC2154

# formed NAME VALUE PATTERN COMPLAINT HINT: refuses a value that as a whole is not the pattern.
formed() {
  local LC_ALL=C
  [[ $2 =~ ^($3)$ ]] || fail "$1=$(quoted "${2:0:80}") $4" "$5"
}

# numbered NAME VALUE: refuses what is no whole number above 0.
numbered() { formed "$1" "$2" '[1-9][0-9]{0,6}' 'is no whole number above 0' "as in $1=10"; }

# on NAME VALUE: whether a switch is on.
on() {
  case $2 in
    1 | yes | true | on) return 0 ;;
    '' | 0 | no | false | off) return 1 ;;
    *) fail "$1=$(quoted "${2:0:80}") is neither on nor off" "$1=1 or $1=0" ;;
  esac
}

# The project must be named: a default of gcloud's own could be anybody's.
need_project() {
  [ -n "${GCP_PROJECT:-}" ] || fail "GCP_PROJECT is not set" "export GCP_PROJECT=your-project-id"
  formed GCP_PROJECT "$GCP_PROJECT" '[a-z][a-z0-9-]{4,28}[a-z0-9]' 'is no id of a project' "the id (not the name, not the number): gcloud projects list"
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
    *) fail "GPU=$(quoted "${GPU:0:80}") is not known" "GPU=l4 (NVIDIA L4, 24 GB) or GPU=rtx (RTX PRO 6000, 96 GB)" ;;
  esac
}

need_region() {
  [ -n "${GCP_REGION:-}" ] || fail "GCP_REGION is not set" "export GCP_REGION=europe-west4, or another; docs/deploy.md lists those with a GPU"
  formed GCP_REGION "$GCP_REGION" '[a-z]+-[a-z]+[0-9]+' 'is no region' 'a region is as in europe-west4; docs/deploy.md lists those with a GPU'
}

# The region must have the GPU: Cloud Run says so only after minutes.
need_gpu_region() {
  need_region
  case " $regions " in *" $GCP_REGION "*) return 0 ;; esac
  case " $invited " in
    *" $GCP_REGION "*) say "note: $gpu_type is given in $GCP_REGION by invitation; elsewhere: $regions" ;;
    *) fail "Cloud Run has no $gpu_type in $GCP_REGION" "it has it in: $regions; by invitation: $invited" ;;
  esac
}

# Names of everything there is in one project and region. GCP_REGION must be set.
name_things() {
  registry=$GCP_REGION-docker.pkg.dev
  image=$registry/$GCP_PROJECT/dgem/dgemma
  weights_bucket=${WEIGHTS_BUCKET:-$GCP_PROJECT-dgem-weights-$GCP_REGION}
  build_bucket=${BUILD_BUCKET:-$GCP_PROJECT-dgem-build-$GCP_REGION}
  batch_bucket=${BATCH_BUCKET:-$GCP_PROJECT-dgem-batch-$GCP_REGION}
  local pair
  for pair in "WEIGHTS_BUCKET=$weights_bucket" "BUILD_BUCKET=$build_bucket" "BATCH_BUCKET=$batch_bucket"; do
    formed "${pair%%=*}" "${pair#*=}" '[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]' 'is no name of a bucket' \
      'at most 63 of a-z, 0-9, -, _ and ., without gs://; set WEIGHTS_BUCKET, BUILD_BUCKET and BATCH_BUCKET'
  done
}

name_service() {
  service=${SERVICE:-dgemma}
  formed SERVICE "$service" '[a-z]([a-z0-9-]{0,47}[a-z0-9])?' 'is no name of a service' 'at most 49 of a-z, 0-9 and -, as in SERVICE=dgemma'
}

# name_machine DEFAULT
name_machine() {
  vm=${VM:-$1}
  formed VM "$vm" '[a-z]([a-z0-9-]{0,61}[a-z0-9])?' 'is no name of a machine' 'at most 63 of a-z, 0-9 and -, as in VM=dgem-4'
}

name_network() {
  network=${NETWORK:-default} subnet=${SUBNET:-default}
  local name='[a-z]([a-z0-9-]{0,61}[a-z0-9])?'
  formed NETWORK "$network" "$name" 'is no name of a network' 'list them with: gcloud compute networks list'
  formed SUBNET "$subnet" "$name" 'is no name of a subnet' 'list them with: gcloud compute networks subnets list'
}

# The server's own settings, for those who start it. The arguments are the defaults of CTX and QUANT.
name_server() {
  ctx=${CTX:-$1} quant=${QUANT:-$2} dtype=${DTYPE:-bf16}
  numbered CTX "$ctx"
  formed QUANT "$quant" 'none|q8_0|q6k|q4k' 'is no form of weights' 'none, q8_0, q6k or q4k'
  formed DTYPE "$dtype" 'bf16|f32' 'is no number format' 'bf16 or f32'
}

# name_secret NAME VALUE: refuses what is no name of a secret, but not nothing.
name_secret() { formed "$1" "$2" '([A-Za-z0-9_][A-Za-z0-9_-]{0,254})?' 'is no name of a secret' "the name, never the secret itself: gcloud secrets list"; }

# The revision that images are tagged with. What is sent to be built (.gcloudignore) and not committed has no name.
name_revision() {
  local path sent=()
  revision=${DGEM_REVISION:-}
  if [ -z "$revision" ]; then
    command -v git >/dev/null || fail "git is not installed" "install the package git, or name the revision with DGEM_REVISION"
    revision=$(git -C "$root" rev-parse --short=12 HEAD) ||
      fail "git tells no revision of $root" "clone it with git, or name the revision with DGEM_REVISION"
    while read -r path; do sent+=("$path"); done < <(sed -n 's|^!/||p' "$root/.gcloudignore")
    if [ -n "$(git -C "$root" status --porcelain -- "${sent[@]}")" ]; then
      on ALLOW_DIRTY "${ALLOW_DIRTY:-}" || fail "there are changes that are not committed, so the revision $revision is not what would be built" \
        "commit them, or set ALLOW_DIRTY=1 to use the tag $revision-dirty"
      revision=$revision-dirty
    fi
  fi
  formed DGEM_REVISION "$revision" '[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}' 'is no revision' 'the first 12 digits of a commit, as in the tags of the images'
}

# The weights: what the hub calls them, and the commit that is staged.
name_weights() {
  local part='[A-Za-z0-9_][A-Za-z0-9._-]{0,95}'
  repo=${REPO:-nvidia/diffusiongemma-26B-A4B-it-NVFP4}
  formed REPO "$repo" "$part/$part" 'is no repository' 'write OWNER/NAME'
  model=${repo##*/}
  [ -z "${REVISION:-}" ] ||
    formed REVISION "$REVISION" '[0-9a-f]{40}' 'is no commit' 'a branch moves; give the 40 hexadecimal digits, or leave REVISION out'
}
