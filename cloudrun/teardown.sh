#!/usr/bin/env bash
# Takes the service and the batch job down, which ends all costs of computing; with ALL=1 also the images, the weights, the
# other buckets and the accounts. Lists what remains, and fails if anything does that should be gone.
# Called by `make cloudrun-teardown`. Needs GCP_PROJECT and GCP_REGION.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
need_project
need_region
name_things
service=${SERVICE:-dgemma}
all=
! on ALL "${ALL:-}" || all=1
accounts='dgem-run dgem-build dgem-batch'
# One thing that cannot be looked at keeps nothing else from being taken down.
go_on=1

# remove WORD… -- WORD…: looks with the first command, deletes with the second what is there. A dry run prints both.
remove() {
  local look=()
  while [ "$1" != -- ]; do
    look+=("$1")
    shift
  done
  shift
  local code=0
  query "${look[@]}" >/dev/null || code=$?
  if [ "$code" -eq 0 ] || [ -n "$dry" ]; then
    apply "$@" --quiet || failed=1
  elif [ "$code" -ne 1 ]; then
    failed=1
  fi
}
failed=

# Where a service of Google's is off nothing can be listed.
enable_services run artifactregistry iam storage
in_region=--region=$GCP_REGION
remove run services describe "$service" "$in_region" -- run services delete "$service" "$in_region"
remove run jobs describe dgem-batch "$in_region" -- run jobs delete dgem-batch "$in_region"
# list WHAT WORD…: adds what a command finds to `remains`.
list() {
  local found what=$1
  shift
  if ! found=$(query "$@"); then
    if [ -z "$dry" ]; then
      say "error: could not list: $what"
      failed=1
    fi
  elif [ -n "$found" ]; then
    while read -r name; do remains+="  $what: $name"$'\n'; done <<<"$found"
  fi
}
# What we made bears our label. A bucket that only is used here does not, and stays.
here="location=$(tr '[:lower:]' '[:upper:]' <<<"$GCP_REGION")"
remains=
if [ -n "$all" ]; then
  remove artifacts repositories describe dgem "--location=$GCP_REGION" -- artifacts repositories delete dgem "--location=$GCP_REGION"
  buckets=$(query storage buckets list "--filter=labels.app=dgem AND $here" '--format=value(name)') || [ -n "$dry" ] || failed=1
  for bucket in ${dry:+BUCKET} $buckets; do apply storage rm "gs://$bucket" --recursive --quiet || failed=1; done
  for bucket in "$weights_bucket" "$build_bucket" "$batch_bucket"; do
    ! own_bucket "$bucket" || say "note: the bucket $bucket stays, for it was not made by these scripts"
  done
  # The accounts are those of every region.
  list service run services list --filter=metadata.labels.app=dgem '--format=value(metadata.name)'
  list job run jobs list --filter=metadata.labels.app=dgem '--format=value(metadata.name)'
  list bucket storage buckets list --filter=labels.app=dgem '--format=value(name)'
  if [ -n "$remains$failed" ]; then
    say "note: the accounts stay, for something of dgem is left in this or another region"
    accounts=
  fi
  for name in $accounts; do
    remove iam service-accounts describe "$(account "$name")" -- iam service-accounts delete "$(account "$name")"
  done
fi

remains=
list service run services list "$in_region" --filter=metadata.labels.app=dgem '--format=value(metadata.name)'
list job run jobs list "$in_region" --filter=metadata.labels.app=dgem '--format=value(metadata.name)'
computing=$remains
list repository artifacts repositories list "--location=$GCP_REGION" --filter=labels.app=dgem '--format=value(name)'
list bucket storage buckets list "--filter=labels.app=dgem AND $here" '--format=value(name)'
[ -z "$accounts" ] || list account iam service-accounts list '--filter=email~^dgem-(run|build|batch)@' '--format=value(email)'
[ -z "$dry" ] || exit 0

if [ -z "$remains" ] && [ -z "$failed" ]; then
  say "nothing of dgem remains in $GCP_PROJECT, $GCP_REGION"
  exit 0
fi
if [ -n "$remains" ]; then
  say "what remains:"
  printf '%s' "$remains" >&2
fi
if [ -n "$failed" ] || [ -n "$all" ] || [ -n "$computing" ]; then
  say "error: not everything that should be gone is gone"
  exit 1
fi
say "no service or job runs; the rest costs storage only. Remove it too with: make cloudrun-teardown ALL=1"
