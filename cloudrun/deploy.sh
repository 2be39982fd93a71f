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
name_service
name_network
name_server 32768 none

# What one instance admits: the server's queue (`--queue`, dgemma-server/src/cli/serving.rs) has a place for every canvas, and a sheet is
# read from at most 32 (`max_reads`, decision/src/limits.rs). So many requests at a time surely find places; beyond them Cloud
# Run starts another instance, and no instance gets more than 1000. A request that takes more places (a sheet of several parts,
# `/v1/systemone` with draws for every question) may find too few and get 429, which clients try again.
most_draws=32
queue_places=${QUEUE:-2048}
numbered QUEUE "$queue_places"
concurrency=$((queue_places / most_draws))
[ "$concurrency" -ge 1 ] || fail "QUEUE=$queue_places has no room for a request of $most_draws draws" "QUEUE=$most_draws or more; by default 2048"
[ "$concurrency" -le 1000 ] || concurrency=1000
# As many instances as take the decisions that are wanted at a time.
decisions=${CONCURRENT_DECISIONS:-192}
numbered CONCURRENT_DECISIONS "$decisions"
instances=${MAX_INSTANCES:-$(((decisions + concurrency - 1) / concurrency))}
numbered MAX_INSTANCES "$instances"

# Everybody (allUsers, allAuthenticatedUsers) is nobody whom a service with a GPU should answer.
[ -z "${INVOKER:-}" ] || formed INVOKER "$INVOKER" '(user|group|serviceAccount|domain):[^[:space:],]+' 'is no caller' \
  'write user:, group:, serviceAccount: or domain: and the name, as in user:a@example.org'

staged_commit
image_digest "$revision-cuda$capability"
enable_services run iam storage compute
# Through the network of the project the bucket is read several times faster than over the internet.
way=(--clear-network)
if [ "$network" != none ]; then
  there compute networks subnets describe "$subnet" "--region=$GCP_REGION" '--format=value(name)' || [ -n "$dry" ] ||
    fail "there is no subnet $subnet in $GCP_REGION" "name one with NETWORK and SUBNET, or NETWORK=none to read the weights over the internet"
  apply compute networks subnets update "$subnet" "--region=$GCP_REGION" --enable-private-ip-google-access
  way=("--network=$network" "--subnet=$subnet" --vpc-egress=all-traffic)
fi
ensure_account dgem-run 'dgem: runs the server, reads the weights'
allow_bucket "$weights_bucket" dgem-run roles/storage.objectViewer

environment=DGEMMA_MODEL=/mnt/weights/$commit/$model,DGEMMA_CTX=$ctx,DGEMMA_QUEUE=$queue_places
environment+=,DGEMMA_QUANT=$quant,DGEMMA_DTYPE=$dtype,DGEMMA_LOG_FORMAT=json,GOOGLE_CLOUD_PROJECT=$GCP_PROJECT
# beta: only there does --add-volume take mount-options.
apply beta run deploy "$service" "--image=$image@$digest" "--region=$GCP_REGION" --labels=app=dgem \
  --gpu=1 "--gpu-type=$gpu_type" --no-gpu-zonal-redundancy "--cpu=$cpus" "--memory=$memory" --no-cpu-throttling \
  --execution-environment=gen2 "--service-account=$(account dgem-run)" --no-allow-unauthenticated \
  "--concurrency=$concurrency" --min-instances=0 "--max-instances=$instances" --timeout=300 --port=8080 \
  --startup-probe=httpGet.path=/readyz,httpGet.port=8080,initialDelaySeconds=10,timeoutSeconds=5,periodSeconds=10,failureThreshold=120 \
  --liveness-probe=httpGet.path=/livez,httpGet.port=8080,timeoutSeconds=5,periodSeconds=30,failureThreshold=3 \
  "--add-volume=name=weights,type=cloud-storage,bucket=$weights_bucket,readonly=true,mount-options=enable-buffered-read=true;uid=10001;gid=10001" \
  --add-volume-mount=volume=weights,mount-path=/mnt/weights "--set-env-vars=$environment" "${way[@]}"
if [ -n "${INVOKER:-}" ]; then
  bind run services add-iam-policy-binding "$service" "--region=$GCP_REGION" "--member=$INVOKER" --role=roles/run.invoker
fi

url=$(query run services describe "$service" "--region=$GCP_REGION" '--format=value(status.url)') || url=
[ -z "$dry" ] || url=https://SERVICE-URL
[ -n "$url" ] || broken "$service was deployed, but Cloud Run tells no address of it" \
  "gcloud run services describe $service --region=$GCP_REGION --project=$GCP_PROJECT"
[ -n "$dry" ] || printf '%s\n' "$url"
say "deployed. Try (the first answer waits for the weights; whoever calls needs roles/run.invoker):"
say "  bin/dgem decide -u $url/v1 --gcp-auth --wait-ready 20m -t templates/support_triage.json.tmpl -v 'ticket=Emergency outage'"
say "an instance costs as long as it runs, idle minutes too; take everything down with: make cloudrun-teardown"
