#!/usr/bin/env bash
# Writes the digests of the base images into the Dockerfiles, beside their tags, as Docker Hub has them now: what is built after
# the change is committed is built from these, whatever becomes of the tags. Called by `make cloudrun-pin`; DRY_RUN=1 prints the
# questions. Run it again to take newer ones. Read next: cloudrun/Dockerfile.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
need_tool curl
need_tool jq

# Sets `digest` of NAME:TAG at Docker Hub, which wants a token from everybody and gives one to everybody.
ask_hub() {
  local reference=$1 path=${1%:*} tag=${1##*:}
  case $path in */*) ;; *) path=library/$path ;; esac
  local token=(curl --fail --silent --show-error "https://auth.docker.io/token?service=registry.docker.io&scope=repository:$path:pull")
  local head=(curl --fail --silent --show-error --head --header "@$scratch/headers" "https://registry-1.docker.io/v2/$path/manifests/$tag")
  if [ -n "$dry" ]; then
    quoted "${token[@]}"
    quoted "${head[@]}"
    return
  fi
  printf 'Accept: %s\n' application/vnd.oci.image.index.v1+json application/vnd.docker.distribution.manifest.list.v2+json >"$scratch/headers"
  if ! "${token[@]}" | jq -r '"Authorization: Bearer \(.token)"' >>"$scratch/headers" || ! "${head[@]}" >"$scratch/head"; then
    broken "Docker Hub tells nothing of $reference" "the reason stands above; nothing was written"
  fi
  digest=$(tr -d '\r' <"$scratch/head" | sed -nE 's/^[Dd]ocker-[Cc]ontent-[Dd]igest: (sha256:[0-9a-f]{64})$/\1/p')
  [ -n "$digest" ] || broken "Docker Hub gave no digest for $reference" "nothing was written"
}

# All are known before any is written.
files=("$root/cloudrun/Dockerfile" "$root/cloudrun/cpu.Dockerfile")
script=
while IFS='=' read -r name base; do
  ask_hub "${base%@*}"
  script+="s|^ARG $name=.*|ARG $name=${base%@*}@${digest:-}|;"
  [ -n "$dry" ] || say "$name: ${base%@*}@$digest"
done < <(sed -nE 's/^ARG ([A-Z_]+_IMAGE)=(.+)/\1=\2/p' "${files[@]}" | sort -u)
[ -z "$dry" ] || exit 0
for file in "${files[@]}"; do
  sed "$script" "$file" >"$scratch/pinned"
  cat "$scratch/pinned" >"$file"
done
say "written to cloudrun/Dockerfile and cloudrun/cpu.Dockerfile; commit them, then: make cloudrun-build"
