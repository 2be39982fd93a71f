#!/usr/bin/env bash
# Decides many rows with a Cloud Run job against the deployed service: uploads ROWS (JSONL or CSV), makes the job, runs it and
# waits; the results lie beside the rows in the bucket. Called by `make cloudrun-batch`.
# Needs GCP_PROJECT, GCP_REGION and ROWS; TEMPLATE, RUN, TASKS, PARALLEL, JOBS. Read next: cloudrun/batch-job.yaml.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
need_project
need_gpu
need_region
name_things
name_revision

service=${SERVICE:-dgemma}
rows=${ROWS:-}
[ -n "$rows" ] || fail "ROWS is not set" "name the file with the rows: ROWS=rows.jsonl"
[ -f "$rows" ] || fail "there is no file $rows" "ROWS names a JSONL or CSV file, as for dgem batch -i"
case $rows in *.csv) form=csv ;; *) form=jsonl ;; esac
template=${TEMPLATE:-support_triage}
tasks=${TASKS:-20} parallel=${PARALLEL:-10} jobs=${JOBS:-4}
for number in "$tasks" "$parallel" "$jobs"; do
  [[ $number =~ ^[1-9][0-9]{0,4}$ ]] || fail "TASKS, PARALLEL and JOBS are whole numbers, not '$number'" "TASKS=20 PARALLEL=10 JOBS=4"
done
run=${RUN:-run}
case $run in '' | *[!A-Za-z0-9._-]* | .*) fail "RUN=$run is no name" "letters, digits, '-', '_' and '.'" ;; esac

image_digest "$revision-cpu"
url=$(query run services describe "$service" "--region=$GCP_REGION" '--format=value(status.url)') || url=
[ -z "$dry" ] || url=https://SERVICE-URL
[ -n "$url" ] || fail "there is no service $service in $GCP_REGION" "deploy it with: make cloudrun-deploy"

enable_services run iam storage
ensure_account dgem-batch 'dgem: asks the service for batches'
ensure_bucket "$batch_bucket"
allow_bucket "$batch_bucket" dgem-batch roles/storage.objectUser
bind run services add-iam-policy-binding "$service" "--region=$GCP_REGION" "--member=serviceAccount:$(account dgem-batch)" --role=roles/run.invoker
apply storage cp "$rows" "gs://$batch_bucket/$run/rows.$form"
# A file is taken along; a name that dgem knows is in the image.
if [ -f "$template" ]; then
  apply storage cp "$template" "gs://$batch_bucket/$run/template.json.tmpl"
  template=/mnt/batch/$run/template.json.tmpl
fi
case $template in *[!A-Za-z0-9._/-]*) fail "TEMPLATE=$template is neither a file nor a name" "dgem template list shows the names" ;; esac

job=$scratch/job.yaml
sed -e "s|\${REGION}|$GCP_REGION|; s|\${PROJECT}|$GCP_PROJECT|; s|\${TASKS}|$tasks|; s|\${PARALLEL}|$parallel|; s|\${JOBS}|$jobs|" \
  -e "s|\${IMAGE}|$image@$digest|; s|\${RUN}|$run|; s|\${TEMPLATE}|$template|; s|\${URL}|$url|; s|\${BUCKET}|$batch_bucket|" \
  "$root/cloudrun/batch-job.yaml" >"$job"
apply run jobs replace "$job" "--region=$GCP_REGION"
apply run jobs execute dgem-batch "--region=$GCP_REGION" --wait
say "results: gcloud storage cat 'gs://$batch_bucket/$run/results-*.jsonl'"
