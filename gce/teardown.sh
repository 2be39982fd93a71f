#!/usr/bin/env bash
# Deletes every machine of dgem, in all zones, with its disks, and its firewall rules; lists what remains, and fails if
# anything does. With VM only that machine, with ALL=1 also the machines' account. Called by `make gce-teardown`. Needs GCP_PROJECT.
# Images and weights are the business of cloudrun/teardown.sh. Read next: scripts/teardown.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
. "$root/scripts/teardown.sh"
need_project
name_machine dgem
# A disk has its machine's name.
only=
[ -n "$all" ] || only=${VM:+" AND name=$vm"}

machines() { list compute instances list "--filter=labels.app=dgem$only" '--format=value(name,zone.basename(),disks[].source.basename())'; }
# Those with our label, and those that the machines had: a disk gets its label a moment after its machine is made.
disks() {
  local zone names name code
  {
    list compute disks list "--filter=labels.app=dgem$only" '--format=value(name,zone.basename())' || exit 1
    while read -r _ zone names; do
      for name in ${names//;/ }; do
        code=0
        query compute disks describe "$name" "--zone=$zone" '--format=value(name,zone.basename())' || code=$?
        [ "$code" -le 1 ] || exit 1
      done
    done <<<"$found"
  } | LC_ALL=C sort -u
}
# Rules have no labels, accounts neither: they go by the names that we give.
rules() { list compute firewall-rules list '--filter=name~^dgem-allow-' '--format=value(name)'; }
accounts() { list iam service-accounts list '--filter=email~^dgem-vm@' '--format=value(email)'; }

# Where a service of Google's is off nothing can be listed.
enable_services compute iam
found=$(machines) || failed=1
found_machines() { printf '%s\n' "$found"; }
remove found_machines compute instances delete -- --delete-disks=all
remove disks compute disks delete
gone=(machines disks)
others=
if [ -n "$only" ]; then
  others=$(list compute instances list --filter=labels.app=dgem '--format=value(name)') || { failed=1 && others=unknown; }
fi
if [ -n "$others" ]; then
  say "note: the firewall rules stay, for other machines of dgem need them"
else
  remove rules compute firewall-rules delete
  gone+=(rules)
fi
[ -z "$all" ] || remove accounts iam service-accounts delete
[ -z "$dry" ] || exit 0

remains=
left "${gone[@]}" ${all:+accounts}
show_remains
[ -z "$remains$failed" ] || broken "not everything is gone" \
  "run this again, or look with: gcloud compute instances list --project=$GCP_PROJECT"
if [ -n "$only" ]; then say "no machine $vm remains in $GCP_PROJECT"; else say "no machine, disk or rule of dgem remains in $GCP_PROJECT"; fi
