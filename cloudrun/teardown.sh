#!/usr/bin/env bash
# Takes the services and the batch jobs down, which ends all costs of computing; with ALL=1 also the images, the weights, the
# other buckets and the accounts. Lists what remains, and fails if anything does that should be gone.
# Called by `make cloudrun-teardown`. Needs GCP_PROJECT and GCP_REGION; ALL, SERVICE. Read next: scripts/teardown.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
. "$root/scripts/teardown.sh"
need_project
need_region
name_things
name_service
# Without SERVICE, and with ALL=1, every service of dgem in the region.
only=
[ -n "$all" ] || only=${SERVICE:+" AND metadata.name=$service"}

# What we made bears our label, but for accounts, which have none. A bucket that only is used here does not, and stays.
in_region=--region=$GCP_REGION
here="location=$(tr '[:lower:]' '[:upper:]' <<<"$GCP_REGION")"
services() { list run services list "$in_region" "--filter=metadata.labels.app=dgem$only" '--format=value(metadata.name)'; }
jobs_of_batches() { list run jobs list "$in_region" --filter=metadata.labels.app=dgem '--format=value(metadata.name)'; }
repositories() { list artifacts repositories list "--location=$GCP_REGION" --filter=labels.app=dgem '--format=value(name.basename())'; }
buckets() { list storage buckets list "--filter=labels.app=dgem AND $here" '--format=value(name)' | sed 's|^|gs://|'; }
accounts() { list iam service-accounts list '--filter=email~^dgem-(run|build|batch)@' '--format=value(email)'; }
# Of every region, whose accounts are the same.
services_anywhere() { list run services list --filter=metadata.labels.app=dgem '--format=value(metadata.name)'; }
jobs_anywhere() { list run jobs list --filter=metadata.labels.app=dgem '--format=value(metadata.name)'; }
buckets_anywhere() { list storage buckets list --filter=labels.app=dgem '--format=value(name)'; }

# Where a service of Google's is off nothing can be listed.
enable_services run artifactregistry iam storage
gone=(services jobs_of_batches) stays=(repositories buckets accounts)
remove services run services delete -- "$in_region"
remove jobs_of_batches run jobs delete -- "$in_region"
if [ -n "$all" ]; then
  remove repositories artifacts repositories delete -- "--location=$GCP_REGION"
  remove buckets storage rm -- --recursive
  gone+=(repositories buckets) stays=()
  for bucket in "$weights_bucket" "$build_bucket" "$batch_bucket"; do
    ! own_bucket "$bucket" || say "note: the bucket $bucket stays, for it was not made by these scripts"
  done
  remains=
  left services_anywhere jobs_anywhere buckets_anywhere
  if [ -n "$remains$failed" ]; then
    say "note: the accounts stay, for something of dgem is left in this or another region"
  else
    remove accounts iam service-accounts delete
    gone+=(accounts)
  fi
fi
[ -z "$dry" ] || exit 0

remains=
left "${gone[@]}"
if [ -n "$remains$failed" ]; then
  show_remains
  broken "not everything that should be gone is gone" "run this again; the reasons stand above"
fi
only=
if [ -n "${SERVICE:-}" ]; then stays+=(services); fi
left ${stays[@]+"${stays[@]}"}
show_remains
[ -z "$failed" ] || broken "what else there is could not be listed" "the reason stands above"
case $remains in
  '') say "nothing of dgem remains in $GCP_PROJECT, $GCP_REGION" ;;
  *'  services: '*) say "$service is gone. The other services cost as long as their instances run; take them down with: make cloudrun-teardown SERVICE=" ;;
  *) say "no service or job runs; the rest costs storage only. Remove it too with: make cloudrun-teardown ALL=1" ;;
esac
