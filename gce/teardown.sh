#!/usr/bin/env bash
# Deletes every machine of dgem, in all zones, with its disks, and its firewall rules; lists what remains, and fails if
# anything does. With ALL=1 also the machines' account. Called by `make gce-teardown`. Needs GCP_PROJECT.
# Images and weights are the business of cloudrun/teardown.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
need_project
failed=
all=
! on ALL "${ALL:-}" || all=1
# One thing that cannot be listed keeps nothing else from being deleted.
go_on=1

# What there is: name and zone, a line each. Disks and rules go by name: gcloud gives them no labels when it makes them.
machines() { list compute instances list --filter=labels.app=dgem '--format=value(name,zone.basename())'; }
disks() { list compute disks list '--filter=name~^dgem-(4|8|16)$' '--format=value(name,zone.basename())'; }
rules() { list compute firewall-rules list '--filter=name~^dgem-allow-' '--format=value(name)'; }
accounts() { list iam service-accounts list '--filter=email~^dgem-vm@' '--format=value(email)'; }

# A query that fails makes the whole fail, for then nobody knows what is there. A dry run names no names.
list() {
  query "$@" || {
    [ -z "$dry" ] || return 0
    say "error: could not list: gcloud $*"
    return 1
  }
}

# remove KIND WORD…: deletes with these words of gcloud whatever KIND lists.
remove() {
  local lines name zone kind=$1
  shift
  lines=$("$kind") || {
    failed=1
    return
  }
  [ -z "$dry" ] || lines=NAME
  while read -r name zone; do
    [ -z "$name" ] || apply "$@" "$name" ${zone:+"--zone=$zone"} --quiet || failed=1
  done <<<"$lines"
}

# Where a service of Google's is off nothing can be listed.
enable_services compute iam
remove machines compute instances delete --delete-disks=all
remove disks compute disks delete
remove rules compute firewall-rules delete
[ -z "$all" ] || remove accounts iam service-accounts delete
[ -z "$dry" ] || exit 0

remains=
for kind in machines disks rules ${all:+accounts}; do
  lines=$("$kind") || failed=1
  while read -r name; do
    [ -z "$name" ] || remains+="  $kind: $name"$'\n'
  done <<<"$lines"
done
if [ -n "$remains" ]; then
  say "what remains:"
  printf '%s' "$remains" >&2
fi
if [ -n "$remains$failed" ]; then
  say "error: not everything is gone; look with: gcloud compute instances list --project=$GCP_PROJECT"
  exit 1
fi
say "no machine, disk or rule of dgem remains in $GCP_PROJECT"
