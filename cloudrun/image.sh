#!/usr/bin/env bash
# The step of cloudrun/cloudbuild.yaml: builds one image. Its Dockerfile names base images (ARG …_IMAGE=…); each is pulled first and
# then handed over by its digest, so that what is built from is what is recorded: in the log, and as labels `dgem.base.…`.
# Usage: image.sh DOCKERFILE IMAGE CAPABILITY REVISION
set -euo pipefail
[ $# -eq 4 ] || {
  echo "usage: image.sh DOCKERFILE IMAGE CAPABILITY REVISION" >&2
  exit 2
}
dockerfile=$1 image=$2 capability=$3 revision=$4

options=()
while IFS='=' read -r name base; do
  docker pull --quiet "$base"
  digest=$(docker image inspect --format '{{range .RepoDigests}}{{println .}}{{end}}' "$base" | sed -n 's/.*@//p' | head -n 1)
  [[ $digest =~ ^sha256:[0-9a-f]{64}$ ]] || {
    echo "error: the digest of $base is not known" >&2
    exit 1
  }
  echo "base image: $name ${base%@*}@$digest"
  options+=("--build-arg=$name=${base%@*}@$digest" "--label=dgem.base.$name=${base%@*}@$digest")
done < <(sed -nE 's/^ARG ([A-Z_]+_IMAGE)=(.+)/\1=\2/p' "$dockerfile")
[ ${#options[@]} -gt 0 ] || {
  echo "error: $dockerfile names no base image" >&2
  exit 1
}
exec docker build "--file=$dockerfile" "--tag=$image" "--build-arg=CAPABILITY=$capability" "--build-arg=GIT_REVISION=$revision" "${options[@]}" .
