#!/usr/bin/env bash
# Decides many rows with a Cloud Run job against the deployed service: uploads ROWS (JSONL or CSV), makes the job, runs it and
# waits; the results lie beside the rows in the bucket. Called by `make cloudrun-batch`.
# Needs GCP_PROJECT, GCP_REGION, ROWS and RUN; TEMPLATE, TASKS, PARALLEL, JOBS. Read next: cloudrun/batch-job.yaml.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/../scripts/cloud.sh"
need_project
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
run=${RUN:-}
[ -n "$run" ] || fail "RUN is not set" "name this run: RUN=first; with the same name and the same rows it goes on where it stopped"
case $run in *[!A-Za-z0-9._-]* | .*) fail "RUN=$run is no name" "letters, digits, '-', '_' and '.'" ;; esac
# A file is taken along; a name that dgem knows is in the image.
own_template=
if [ -f "$template" ]; then
  own_template=$template
  template=/mnt/batch/$run/template.json.tmpl
fi
case $template in *[!A-Za-z0-9._/-]*) fail "TEMPLATE=$template is neither a file nor a name" "dgem template list shows the names" ;; esac
# What results belong to. With other rows, another template or other shares they would be mixed without a word.
begun="rows $form $(git hash-object --no-filters "$rows")
template $template${own_template:+ $(git hash-object --no-filters "$own_template")}
tasks $tasks"

image_digest "$revision-cpu"
url=$(query run services describe "$service" "--region=$GCP_REGION" '--format=value(status.url)') || url=
[ -z "$dry" ] || url=https://SERVICE-URL
[ -n "$url" ] || fail "there is no service $service in $GCP_REGION" "deploy it with: make cloudrun-deploy"

enable_services run iam storage
ensure_account dgem-batch 'dgem: asks the service for batches'
ensure_bucket "$batch_bucket"
if earlier=$(query storage cat "gs://$batch_bucket/$run/run.txt"); then
  [ "$earlier" = "$begun" ] || fail "RUN=$run was begun with other rows, another TEMPLATE or other TASKS:
$earlier" "take another RUN, or the same as then; now it is:
$begun"
else
  printf '%s\n' "$begun" >"$scratch/run.txt"
  apply storage cp "$scratch/run.txt" "gs://$batch_bucket/$run/run.txt"
fi
allow_bucket "$batch_bucket" dgem-batch roles/storage.objectUser
bind run services add-iam-policy-binding "$service" "--region=$GCP_REGION" "--member=serviceAccount:$(account dgem-batch)" --role=roles/run.invoker
apply storage cp "$rows" "gs://$batch_bucket/$run/rows.$form"
[ -z "$own_template" ] || apply storage cp "$own_template" "gs://$batch_bucket/$run/template.json.tmpl"

job=$scratch/job.yaml
sed -e "s|\${REGION}|$GCP_REGION|; s|\${PROJECT}|$GCP_PROJECT|; s|\${TASKS}|$tasks|; s|\${PARALLEL}|$parallel|; s|\${JOBS}|$jobs|" \
  -e "s|\${IMAGE}|$image@$digest|; s|\${RUN}|$run|; s|\${TEMPLATE}|$template|; s|\${URL}|$url|; s|\${BUCKET}|$batch_bucket|" \
  "$root/cloudrun/batch-job.yaml" >"$job"
apply run jobs replace "$job" "--region=$GCP_REGION"
apply run jobs execute dgem-batch "--region=$GCP_REGION" --wait
say "results: gcloud storage cat 'gs://$batch_bucket/$run/results-*.jsonl'"
