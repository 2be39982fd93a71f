#!/usr/bin/env bash
# Puts the weights into a bucket: Cloud Build downloads one commit of the hub's repository with `dgemma-server download`
# (which checks every sum), uploads it, and writes MANIFEST.json last. Only a copy whose manifest is there, with every file
# in its full length, counts as staged. Called by `make cloudrun-stage`. Needs GCP_PROJECT and GCP_REGION; REPO, REVISION,
# HF_TOKEN_SECRET (the name of a secret, never the token), HF_ENDPOINT. Read next: cloudrun/stage.yaml, cloudrun/upload.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
need_project
need_region
name_things
name_revision
name_weights
need_tool jq
need_tool curl
token_secret=${HF_TOKEN_SECRET:-}
name_secret HF_TOKEN_SECRET "$token_secret"
hub=${HF_ENDPOINT:-https://huggingface.co}
formed HF_ENDPOINT "$hub" 'https?://[A-Za-z0-9][A-Za-z0-9.:/_-]*' 'is no address of a hub' 'as in HF_ENDPOINT=https://huggingface.co'
# A branch is resolved once, here: everything after speaks of one commit.
commit=${REVISION:-}
if [ -z "$commit" ]; then
  ask=(curl --fail --silent --show-error --location "$hub/api/models/$repo")
  if [ -n "$dry" ]; then
    quoted "${ask[@]}" >&3
    commit=COMMIT
  else
    commit=$("${ask[@]}" | jq -r '.sha // empty') || commit=
    [[ $commit =~ ^[0-9a-f]{40}$ ]] ||
      fail "the hub did not tell the newest commit of $repo" "name one with REVISION; a repository that asks for a token needs it"
  fi
fi
to=gs://$weights_bucket/$commit/$model

# Whether every file of the manifest is there in its length.
staged() {
  own_bucket "$weights_bucket" || return 1
  query storage cat "$to/MANIFEST.json" >"$scratch/manifest" || return 1
  query storage objects list "$to/**" '--format=csv[no-heading](name,size)' >"$scratch/objects" || return 1
  jq -r --arg folder "$commit/$model" '.files[] | "\($folder)/\(.name),\(.bytes)"' "$scratch/manifest" >"$scratch/wanted" || return 1
  [ -s "$scratch/wanted" ] || return 1
  ! grep -qvxFf "$scratch/objects" "$scratch/wanted"
}

if staged; then
  say "$to is complete already: $(wc -l <"$scratch/wanted") files"
  exit 0
fi

image_digest "$revision-cpu"
enable_services cloudbuild iam secretmanager storage
[ -z "$token_secret" ] || need_secret "$token_secret"
ensure_bucket "$weights_bucket"
allow_bucket "$weights_bucket" dgem-build roles/storage.objectAdmin
secret=
config=$root/cloudrun/stage.yaml
if [ -n "$token_secret" ]; then
  bind secrets add-iam-policy-binding "$token_secret" "--member=serviceAccount:$(account dgem-build)" --role=roles/secretmanager.secretAccessor
  # The lines for a token are comments in the file: Cloud Build refuses a secret that does not exist.
  secret=,_SECRET=$token_secret
  config=$scratch/stage.yaml
  sed 's/^# token: //' "$root/cloudrun/stage.yaml" >"$config"
  shown "$config"
fi
apply builds submit "$root/cloudrun" "--config=$config" "--region=$GCP_REGION" \
  "--service-account=projects/$GCP_PROJECT/serviceAccounts/$(account dgem-build)" \
  "--gcs-source-staging-dir=gs://$build_bucket/source" "--gcs-log-dir=gs://$build_bucket/logs" \
  "--substitutions=_IMAGE=$image@$digest,_REPO=$repo,_COMMIT=$commit,_MODEL=$model,_TO=$to,_HUB=$hub$secret"
say "next: make cloudrun-deploy"
