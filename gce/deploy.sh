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
[[ $zone =~ ^[a-z]+-[a-z]+[0-9]+-[a-z]$ ]] || fail "GCP_ZONE=$zone is no zone" "a zone is a region and a letter, as in us-central1-a"
GCP_REGION=${zone%-?}
REPO=${REPO:-$default_repo}
name_things
name_revision
name_weights
vm=${VM:-dgem-$precision}
network=${NETWORK:-default} subnet=${SUBNET:-default}
[ "$network" != none ] || fail "NETWORK=none is for Cloud Run only; a machine stands in a network" "name one with NETWORK and SUBNET"
spot=STANDARD
! on SPOT "${SPOT:-}" || spot=SPOT
need_tool jq
max_run=${MAX_RUN:-3h}
[[ $max_run =~ ^[1-9][0-9]*[smhd]$ ]] || fail "MAX_RUN=$max_run is no time" "for example 90m, 3h or 1d"

# Who may reach the server, and how.
secret=${API_KEY_SECRET:-}
if [ -n "${SOURCE_RANGE:-}" ]; then
  [[ $SOURCE_RANGE =~ ^[0-9.]+/([0-9]+)$ ]] && [ "${BASH_REMATCH[1]}" -ge 24 ] ||
    fail "SOURCE_RANGE=$SOURCE_RANGE is no small range of addresses" "your own address, as in 203.0.113.7/32; at most a /24"
  [ -n "$secret" ] || fail "an address of its own needs a key, and API_KEY_SECRET is not set" \
    "put a key into Secret Manager and name the secret: openssl rand -hex 32 | gcloud secrets create dgem-key --data-file=-"
  access="" listen=0.0.0.0
  rule=dgem-allow-address-$network ports=tcp:8080 ranges=$SOURCE_RANGE
else
  access=--no-address listen=127.0.0.1
  rule=dgem-allow-iap-$network ports=tcp:22 ranges=35.235.240.0/20
fi

enable_services compute iap iam storage
query compute machine-types describe "$machine" "--zone=$zone" '--format=value(name)' >/dev/null || [ -n "$dry" ] ||
  fail "there is no $machine in $zone" "zones that have it: gcloud compute machine-types list --filter=name=$machine --format='value(zone)'"
staged_commit
image_digest "$revision-cuda80"
# What the startup script reads, and in dgem-host what else the machine was made with.
metadata=$(printf '%s~' "dgem-ctx=${CTX:-32768}" "dgem-device-map=$device_map" "dgem-gpus=$gpus" "dgem-host=$machine,$spot,$network,$subnet,$max_run,$ranges" \
  "dgem-image=$image@$digest" "dgem-key-secret=$secret" "dgem-listen=$listen" "dgem-quant=${QUANT:-$quant}" "dgem-weights=gs://$weights_bucket/$commit/$model")
metadata=${metadata%'~'}

if found=$(query compute instances describe "$vm" "--zone=$zone" '--format=json(status,metadata.items)'); then
  state=$(jq -r .status <<<"$found")
  [ "$state" = RUNNING ] || fail "$vm is there and $state" "take it down first: make gce-teardown"
  jq -r '.metadata.items[] | select(.key | startswith("dgem-")) | "\(.key)=\(.value // "")"' <<<"$found" | LC_ALL=C sort >"$scratch/has"
  differs=$(diff "$scratch/has" <(tr '~' '\n' <<<"$metadata")) ||
    fail "$vm runs with other settings than are asked for (<: it has, >: asked for):
$differs" "take it down first: make gce-teardown"
  say "$vm runs already"
else
  ensure_account dgem-vm 'dgem: the machine that runs the server'
  allow_bucket "$weights_bucket" dgem-vm roles/storage.objectViewer
  bind artifacts repositories add-iam-policy-binding dgem "--location=$GCP_REGION" \
    "--member=serviceAccount:$(account dgem-vm)" --role=roles/artifactregistry.reader
  [ -z "$secret" ] ||
    bind secrets add-iam-policy-binding "$secret" "--member=serviceAccount:$(account dgem-vm)" --role=roles/secretmanager.secretAccessor
  # Bucket and registry are reached without an address and without NAT.
  apply compute networks subnets update "$subnet" "--region=$GCP_REGION" --enable-private-ip-google-access
  if query compute firewall-rules describe "$rule" '--format=value(name)' >/dev/null; then
    apply compute firewall-rules update "$rule" "--source-ranges=$ranges" "--allow=$ports" --target-tags=dgem
  else
    apply compute firewall-rules create "$rule" "--network=$network" --direction=INGRESS "--source-ranges=$ranges" "--allow=$ports" --target-tags=dgem
  fi
  apply compute instances create "$vm" "--zone=$zone" "--machine-type=$machine" "--provisioning-model=$spot" --maintenance-policy=TERMINATE \
    "--max-run-duration=$max_run" --instance-termination-action=DELETE --no-restart-on-failure \
    --image-family=cos-stable --image-project=cos-cloud "--boot-disk-size=${disk_gb}GB" --boot-disk-type=pd-ssd \
    "--network=$network" "--subnet=$subnet" --tags=dgem --labels=app=dgem ${access:+"$access"} \
    "--service-account=$(account dgem-vm)" --scopes=cloud-platform "--metadata=^~^$metadata" \
    "--metadata-from-file=startup-script=$root/gce/startup.sh"
fi

# The startup script tells its phases on the serial port. Half an hour is enough for driver, image and weights.
seen=
deadline=$((SECONDS + ${WAIT_SECONDS:-1800}))
while [ -z "$dry" ]; do
  log=$(go_on=1 query compute instances get-serial-port-output "$vm" "--zone=$zone") || log=
  phase=$(sed -n 's/.*dgem-startup: //p' <<<"$log" | tr -d '\r' | tail -n 1)
  if [ "$phase" != "$seen" ]; then say "$(date +%T) $phase"; fi
  seen=$phase
  case $phase in
    ready) break ;;
    failed*)
      tail -n 30 <<<"$log" >&2
      say "error: the machine could not start the server"
      say "hint: the end of its log stands above; take it down with: make gce-teardown"
      exit 1
      ;;
  esac
  if [ "$SECONDS" -ge "$deadline" ]; then
    say "error: not ready after ${WAIT_SECONDS:-1800} seconds; the last phase was: ${seen:-none}"
    say "hint: run this again to go on waiting, or take the machine down with: make gce-teardown"
    exit 1
  fi
  sleep "${POLL_SECONDS:-10}"
done

say "the machine deletes itself after $max_run; earlier with: make gce-teardown"
if [ "$listen" = 127.0.0.1 ]; then
  say "reach it through a tunnel, and then as http://127.0.0.1:8080/v1:"
  say "  gcloud compute ssh $vm --zone=$zone --project=$GCP_PROJECT --tunnel-through-iap -- -N -L 8080:127.0.0.1:8080"
  say "  bin/dgem decide -t templates/support_triage.json.tmpl -v 'ticket=Emergency outage'"
else
  address=$(query compute instances describe "$vm" "--zone=$zone" '--format=value(networkInterfaces[0].accessConfigs[0].natIP)') || address=
  [ -z "$dry" ] || address=ADDRESS
  [ -n "$address" ] || fail "$vm has no address" "take it down first: make gce-teardown"
  say "  DGEM_TOKEN_COMMAND='gcloud secrets versions access latest --secret=$secret --project=$GCP_PROJECT' \\"
  say "    bin/dgem decide -u http://$address:8080/v1 -t templates/support_triage.json.tmpl -v 'ticket=Emergency outage'"
fi
