#!/usr/bin/env bash
# Uploads a checked checkpoint folder and, when all of it has arrived, its manifest: MANIFEST.json with repository, commit,
# and name, length and SHA-256 of every file. A step of cloudrun/stage.yaml.
# Usage: upload.sh FOLDER gs://BUCKET/COMMIT/MODEL REPOSITORY COMMIT
set -euo pipefail
[ $# -eq 4 ] || {
  echo "usage: upload.sh FOLDER gs://BUCKET/COMMIT/MODEL REPOSITORY COMMIT" >&2
  exit 2
}
folder=$1 to=$2 repo=$3 commit=$4
[ -f "$folder/config.json" ] || [ -f "$folder/manifest.json" ] || {
  echo "error: $folder holds no checkpoint" >&2
  exit 1
}

# Whoever reads while files are replaced must not take them for a whole.
gcloud storage rm "$to/MANIFEST.json" 2>/dev/null || ! gcloud storage ls "$to/MANIFEST.json" 2>/dev/null || {
  echo "error: $to/MANIFEST.json is of an earlier copy and cannot be removed" >&2
  exit 1
}
# gcloud compares the checksum of every file with that of the object.
gcloud storage rsync "$folder" "$to" --recursive --delete-unmatched-destination-objects --exclude='(^|.*/)\..*'

manifest=$(mktemp)
listed=$(mktemp)
trap 'rm -f "$manifest" "$listed"' EXIT
gcloud storage objects list "$to/**" '--format=csv[no-heading](name,size)' >"$listed"
prefix=${to#gs://*/}
separator=
{
  printf '{"repo": "%s", "commit": "%s", "files": [' "$repo" "$commit"
  while IFS= read -r -d '' name; do
    case $name in *[!A-Za-z0-9._/-]*)
      echo "error: the file name '$name' has characters that are not expected" >&2
      exit 1
      ;;
    esac
    bytes=$(wc -c <"$folder/$name")
    sum=$(sha256sum <"$folder/$name")
    grep -qxF "$prefix/$name,$((bytes))" "$listed" || {
      echo "error: $to/$name is not there in its $((bytes)) bytes" >&2
      exit 1
    }
    printf '%s\n  {"name": "%s", "bytes": %d, "sha256": "%s"}' "$separator" "$name" "$bytes" "${sum%% *}"
    separator=,
  done < <(cd "$folder" && find . -name '.*' ! -name . -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z)
  printf '\n]}\n'
} >"$manifest"
[ -n "$separator" ] || {
  echo "error: $folder is empty" >&2
  exit 1
}
gcloud storage cp "$manifest" "$to/MANIFEST.json"
echo "staged: $to"
