#!/usr/bin/env bash
# Deploys the server to Cloud Run: one GPU, the staged weights mounted read-only, ready when /readyz says so, callable only
# with an identity token. Running it again brings the service to the same state. Called by `make cloudrun-deploy`.
# Needs GCP_PROJECT and GCP_REGION; docs/deploy.md lists the other settings. The same service as YAML: cloudrun/service.yaml.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
need_project
need_gpu
need_gpu_region
name_things
name_revision
name_weights

service=${SERVICE:-dgemma}
network=${NETWORK:-default} subnet=${SUBNET:-default}
# As many requests at a time as find a place in the server's queue for 32 reads each, the most draws of a sheet (`max_reads`,
# decision/src/limits.rs). Beyond them Cloud Run starts another instance. A request that takes more (`/v1/systemone` takes its
# draws for every question) may find too few and get 429, which clients try again.
queue_places=${QUEUE:-2048}
concurrency=$((queue_places / 32))
((concurrency >= 1 && concurrency <= 1000)) || fail "QUEUE=$queue_places gives $concurrency requests an instance" "Cloud Run allows 1 to 1000: QUEUE from 32 to 32000"

# Everybody (allUsers, allAuthenticatedUsers) is nobody whom a service with a GPU should answer.
case ${INVOKER:-} in
  '' | user:?* | group:?* | serviceAccount:?* | domain:?*) ;;
  *) fail "INVOKER=$INVOKER is no caller" "write user:, group:, serviceAccount: or domain: and the name, as in user:a@example.org" ;;
esac

staged_commit
image_digest "$revision-cuda$capability"
enable_services run iam storage compute
ensure_account dgem-run 'dgem: runs the server, reads the weights'
allow_bucket "$weights_bucket" dgem-run roles/storage.objectViewer

# Through the network of the project the bucket is read several times faster than over the internet.
way=(--clear-network)
if [ "$network" != none ]; then
  query compute networks subnets describe "$subnet" "--region=$GCP_REGION" '--format=value(name)' >/dev/null || [ -n "$dry" ] ||
    fail "there is no subnet $subnet in $GCP_REGION" "name one with NETWORK and SUBNET, or NETWORK=none to read the weights over the internet"
  apply compute networks subnets update "$subnet" "--region=$GCP_REGION" --enable-private-ip-google-access
  way=("--network=$network" "--subnet=$subnet" --vpc-egress=all-traffic)
fi

environment=DGEMMA_MODEL=/mnt/weights/$commit/$model,DGEMMA_CTX=${CTX:-32768},DGEMMA_QUEUE=$queue_places
environment+=,DGEMMA_QUANT=${QUANT:-none},DGEMMA_DTYPE=${DTYPE:-bf16},DGEMMA_LOG_FORMAT=json,GOOGLE_CLOUD_PROJECT=$GCP_PROJECT
# beta: only there does --add-volume take mount-options.
apply beta run deploy "$service" "--image=$image@$digest" "--region=$GCP_REGION" --labels=app=dgem \
  --gpu=1 "--gpu-type=$gpu_type" --no-gpu-zonal-redundancy "--cpu=$cpus" "--memory=$memory" --no-cpu-throttling \
  --execution-environment=gen2 "--service-account=$(account dgem-run)" --no-allow-unauthenticated \
  "--concurrency=$concurrency" --min-instances=0 "--max-instances=${MAX_INSTANCES:-3}" --timeout=300 --port=8080 \
  --startup-probe=httpGet.path=/readyz,httpGet.port=8080,initialDelaySeconds=10,timeoutSeconds=5,periodSeconds=10,failureThreshold=120 \
  --liveness-probe=httpGet.path=/livez,httpGet.port=8080,timeoutSeconds=5,periodSeconds=30,failureThreshold=3 \
  "--add-volume=name=weights,type=cloud-storage,bucket=$weights_bucket,readonly=true,mount-options=enable-buffered-read=true;uid=10001;gid=10001" \
  --add-volume-mount=volume=weights,mount-path=/mnt/weights "--set-env-vars=$environment" "${way[@]}"
if [ -n "${INVOKER:-}" ]; then
  apply run services add-iam-policy-binding "$service" "--region=$GCP_REGION" "--member=$INVOKER" --role=roles/run.invoker
fi

url=$(query run services describe "$service" "--region=$GCP_REGION" '--format=value(status.url)') || url=
[ -z "$dry" ] || url=https://SERVICE-URL
[ -n "$url" ] || {
  say "error: $service was deployed, but Cloud Run tells no address of it"
  say "hint: gcloud run services describe $service --region=$GCP_REGION --project=$GCP_PROJECT"
  exit 1
}
[ -n "$dry" ] || printf '%s\n' "$url"
say "deployed. Try (the first answer waits for the weights; whoever calls needs roles/run.invoker):"
say "  bin/dgem decide -u $url/v1 --gcp-auth --wait-ready 20m -t templates/support_triage.json.tmpl -v 'ticket=Emergency outage'"
say "an instance costs as long as it runs, idle minutes too; take everything down with: make cloudrun-teardown"
