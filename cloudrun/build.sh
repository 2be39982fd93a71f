#!/usr/bin/env bash
# Builds the images of this revision with Cloud Build and puts them into Artifact Registry: the server for GPU (cuda80 for
# L4 and A100, cuda120 for RTX PRO 6000) and both programs for a plain CPU. An image that is there is not built again.
# Called by `make cloudrun-build`. Needs GCP_PROJECT and GCP_REGION; GPU=l4|rtx, BUILD_MACHINE. Read next: cloudrun/cloudbuild.yaml.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
need_project
need_gpu
need_region
name_things
name_revision
[ -z "${BUILD_MACHINE:-}" ] || formed BUILD_MACHINE "$BUILD_MACHINE" '[a-z][a-z0-9-]{1,40}' 'is no machine of Cloud Build' 'as in BUILD_MACHINE=e2-highcpu-8'

enable_services artifactregistry cloudbuild iam storage
ensure_account dgem-build 'dgem: builds images, stages weights'
ensure_bucket "$build_bucket"
# Cloud Build looks at the bucket of its logs itself, not only at objects in it.
allow_bucket "$build_bucket" dgem-build roles/storage.admin
ensure there artifacts repositories describe dgem "--location=$GCP_REGION" '--format=value(name)' -- \
  artifacts repositories create dgem --repository-format=docker "--location=$GCP_REGION" --labels=app=dgem
bind artifacts repositories add-iam-policy-binding dgem "--location=$GCP_REGION" \
  "--member=serviceAccount:$(account dgem-build)" --role=roles/artifactregistry.writer

# build TAG DOCKERFILE CAPABILITY
build() {
  local tag=$revision-$1 found=
  # What is not committed may be something else by now.
  [[ $revision == *-dirty ]] || found=$(query artifacts docker images describe "$image:$tag" '--format=value(image_summary.digest)') || found=
  if [ -n "$found" ]; then
    say "$image:$tag is there already: $found"
    return
  fi
  apply builds submit "$root" "--config=$root/cloudrun/cloudbuild.yaml" \
    "--region=$GCP_REGION" "--service-account=projects/$GCP_PROJECT/serviceAccounts/$(account dgem-build)" \
    "--gcs-source-staging-dir=gs://$build_bucket/source" "--gcs-log-dir=gs://$build_bucket/logs" ${BUILD_MACHINE:+"--machine-type=$BUILD_MACHINE"} \
    "--substitutions=_IMAGE=$image:$tag,_DOCKERFILE=$2,_CAPABILITY=$3,_REVISION=$revision"
}

build cpu cloudrun/cpu.Dockerfile 0
build "cuda$capability" cloudrun/Dockerfile "$capability"
say "next: make cloudrun-stage"
