#!/usr/bin/env bash
# Starts one GPU machine on Compute Engine that runs the server in its container, and waits until it answers. The machine
# deletes itself after MAX_RUN (3 h), whatever happens to this script. It has no address of its own and is reached through
# Google's IAP tunnel; with SOURCE_RANGE and API_KEY_SECRET it has one, open to that range and to callers with a key.
# Called by `make gce-deploy`. Needs GCP_PROJECT; PRECISION=4|8|16, GCP_ZONE. Read next: gce/startup.sh, gce/size.sh.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
. "$(dirname "${BASH_SOURCE[0]}")/size.sh"
need_project
need_precision
zone=${GCP_ZONE:-us-central1-a}
formed GCP_ZONE "$zone" '[a-z]+-[a-z]+[0-9]+-[a-z]' 'is no zone' 'a zone is a region and a letter, as in us-central1-a'
GCP_REGION=${zone%-?}
REPO=${REPO:-$default_repo}
name_things
name_revision
name_weights
name_server 32768 "$default_quant"
name_machine "dgem-$precision"
name_network
[ "$network" != none ] || fail "NETWORK=none is for Cloud Run only; a machine stands in a network" "name one with NETWORK and SUBNET"
spot=STANDARD
! on SPOT "${SPOT:-}" || spot=SPOT
need_tool jq
max_run=${MAX_RUN:-3h}
formed MAX_RUN "$max_run" '[1-9][0-9]{0,6}[smhd]' 'is no time' 'for example 90m, 3h or 1d'
# How long to wait for it, and how often to look.
wait_seconds=${WAIT_SECONDS:-1800} poll_seconds=${POLL_SECONDS:-10}
for number in "$wait_seconds" "$poll_seconds"; do
  formed 'WAIT_SECONDS or POLL_SECONDS' "$number" '0|[1-9][0-9]{0,4}' 'is no number of seconds' 'WAIT_SECONDS=1800 POLL_SECONDS=10'
done

# Who may reach the server, and how.
secret=${API_KEY_SECRET:-}
name_secret API_KEY_SECRET "$secret"
if [ -n "${SOURCE_RANGE:-}" ]; then
  byte='(25[0-5]|2[0-4][0-9]|1?[0-9]?[0-9])'
  formed SOURCE_RANGE "$SOURCE_RANGE" "(${byte}[.]){3}$byte/(2[4-9]|3[0-2])" 'is no small range of addresses' 'your own address, as in 203.0.113.7/32; at most a /24'
  [ -n "$secret" ] || fail "an address of its own needs a key, and API_KEY_SECRET is not set" \
    "put a key into Secret Manager and name the secret: openssl rand -hex 32 | gcloud secrets create dgem-key --data-file=-"
  access="" listen=0.0.0.0
  ports=tcp:8080 ranges=$SOURCE_RANGE
else
  access=--no-address listen=127.0.0.1
  ports=tcp:22 ranges=35.235.240.0/20
fi
# A rule says for ever what its name says: no machine changes the one that another was made with.
rule=dgem-allow-${ports#tcp:}-$(cksum <<<"$network $ranges $ports" | cut -d ' ' -f 1)

enable_services compute iap iam storage ${secret:+secretmanager}
there compute machine-types describe "$machine" "--zone=$zone" '--format=value(name)' || [ -n "$dry" ] ||
  fail "there is no $machine in $zone" "zones that have it: gcloud compute machine-types list --filter=name=$machine --format='value(zone)'"
[ -z "$secret" ] || need_secret "$secret"
staged_commit
image_digest "$revision-cuda80"
# What the startup script reads (each has a value: what is missing there is a failure), and in dgem-host what else the machine was made with.
metadata=$(printf '%s~' "dgem-ctx=$ctx" "dgem-device-map=$device_map" "dgem-gpus=$gpus" "dgem-host=$machine,$spot,$network,$subnet,$max_run,$ranges" \
  "dgem-image=$image@$digest" "dgem-key-secret=${secret:-none}" "dgem-listen=$listen" "dgem-quant=$quant" "dgem-weights=gs://$weights_bucket/$commit/$model")
metadata=${metadata%'~'}

if found=$(query compute instances describe "$vm" "--zone=$zone" '--format=json(status,metadata.items)'); then
  state=$(jq -r .status <<<"$found")
  case $state in PROVISIONING | STAGING | RUNNING) ;; *) fail "$vm is there and $state" "take it down first: make gce-teardown" ;; esac
  jq -r '.metadata.items[] | select(.key | startswith("dgem-")) | "\(.key)=\(.value // "")"' <<<"$found" | LC_ALL=C sort >"$scratch/has"
  differs=$(diff "$scratch/has" <(tr '~' '\n' <<<"$metadata")) ||
    fail "$vm runs with other settings than are asked for (<: it has, >: asked for):
$differs" "take it down first: make gce-teardown"
  say "$vm is there already"
else
  ensure_account dgem-vm 'dgem: the machine that runs the server'
  allow_bucket "$weights_bucket" dgem-vm roles/storage.objectViewer
  bind artifacts repositories add-iam-policy-binding dgem "--location=$GCP_REGION" \
    "--member=serviceAccount:$(account dgem-vm)" --role=roles/artifactregistry.reader
  [ -z "$secret" ] ||
    bind secrets add-iam-policy-binding "$secret" "--member=serviceAccount:$(account dgem-vm)" --role=roles/secretmanager.secretAccessor
  # Bucket and registry are reached without an address and without NAT.
  apply compute networks subnets update "$subnet" "--region=$GCP_REGION" --enable-private-ip-google-access
  ensure there compute firewall-rules describe "$rule" '--format=value(name)' -- \
    compute firewall-rules create "$rule" "--network=$network" --direction=INGRESS "--source-ranges=$ranges" "--allow=$ports" --target-tags=dgem
  apply compute instances create "$vm" "--zone=$zone" "--machine-type=$machine" "--provisioning-model=$spot" --maintenance-policy=TERMINATE \
    "--max-run-duration=$max_run" --instance-termination-action=DELETE --no-restart-on-failure \
    --image-family=cos-stable --image-project=cos-cloud "--boot-disk-size=${disk_gb}GB" --boot-disk-type=pd-ssd \
    "--network=$network" "--subnet=$subnet" --tags=dgem --labels=app=dgem ${access:+"$access"} \
    "--service-account=$(account dgem-vm)" --scopes=cloud-platform "--metadata=^~^$metadata" \
    "--metadata-from-file=startup-script=$root/gce/startup.sh"
fi
# Its disk has the machine's name, and gets no label with it. By the label teardown finds it, should it outlive the machine.
apply compute disks add-labels "$vm" "--zone=$zone" --labels=app=dgem

# The startup script tells its phases on the serial port. Half an hour is enough for driver, image and weights.
seen=
deadline=$((SECONDS + wait_seconds))
while [ -z "$dry" ]; do
  code=0
  log=$(go_on=1 query compute instances get-serial-port-output "$vm" "--zone=$zone") || code=$?
  [ "$code" -ne 1 ] || broken "$vm is no longer there: it was taken away, or deleted itself" "make it again with: make gce-deploy"
  phase=$(sed -n 's/.*dgem-startup: //p' <<<"$log" | tr -d '\r' | tail -n 1)
  if [ "$phase" != "$seen" ]; then say "$(date +%T) $phase"; fi
  seen=$phase
  case $phase in
    ready) break ;;
    failed*)
      tail -n 30 <<<"$log" >&2
      broken "the machine could not start the server" "the end of its log stands above; take it down with: make gce-teardown"
      ;;
  esac
  [ "$SECONDS" -lt "$deadline" ] || broken "not ready after $wait_seconds seconds; the last phase was: ${seen:-none}" \
    "run this again to go on waiting, or take the machine down with: make gce-teardown"
  sleep "$poll_seconds"
done

if [ "$listen" != 127.0.0.1 ]; then
  address=$(query compute instances describe "$vm" "--zone=$zone" '--format=value(networkInterfaces[0].accessConfigs[0].natIP)') || address=
  [ -z "$dry" ] || address=ADDRESS
  [ -n "$address" ] || broken "$vm has no address" "take it down first: make gce-teardown"
fi
say "the machine deletes itself after $max_run; earlier with: make gce-teardown"
if [ "$listen" = 127.0.0.1 ]; then
  say "reach it through a tunnel, and then as http://127.0.0.1:8080/v1:"
  say "  gcloud compute ssh $vm --zone=$zone --project=$GCP_PROJECT --tunnel-through-iap -- -N -L 8080:127.0.0.1:8080"
  say "  bin/dgem decide -t templates/support_triage.json.tmpl -v 'ticket=Emergency outage'"
else
  say "  DGEM_TOKEN_COMMAND='gcloud secrets versions access latest --secret=$secret --project=$GCP_PROJECT' \\"
  say "    bin/dgem decide -u http://$address:8080/v1 -t templates/support_triage.json.tmpl -v 'ticket=Emergency outage'"
fi
