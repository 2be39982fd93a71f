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
name_service
need_tool git

# local_file NAME PATH: sets `path`, a file on this machine that gcloud takes neither for a flag nor for a pattern.
local_file() {
  path=$2
  case $path in -*) path=./$path ;; esac
  [ -s "$path" ] && [ -r "$path" ] || fail "$1=$(quoted "${2:0:80}") cannot be read, or is empty" "it must be a file with something in it"
  case $path in *[][*?]*) fail "$1=$(quoted "${2:0:80}") has one of * ? [ ] in its name" "gcloud takes that for a pattern: give the file another name" ;; esac
}
[ -n "${ROWS:-}" ] || fail "ROWS is not set" "name the file with the rows: ROWS=rows.jsonl"
[ -f "$ROWS" ] || fail "there is no file $(quoted "${ROWS:0:80}")" "ROWS names a JSONL or CSV file, as for dgem batch -i"
local_file ROWS "$ROWS"
rows=$path
case $rows in *.csv) form=csv ;; *) form=jsonl ;; esac
tasks=${TASKS:-20} parallel=${PARALLEL:-10} jobs=${JOBS:-4}
numbered TASKS "$tasks"
numbered PARALLEL "$parallel"
numbered JOBS "$jobs"
[ "$tasks" -le 10000 ] || fail "TASKS=$tasks is more than a job may have" "TASKS=10000 at most"
run=${RUN:-}
[ -n "$run" ] || fail "RUN is not set" "name this run: RUN=first; with the same name and the same rows it goes on where it stopped"
# The job bears this name too, so that two runs can be under way at a time.
formed RUN "$run" '[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?' 'is no name of a run' 'at most 40 of a-z, 0-9 and -'
job=dgem-batch-$run
# A file is taken along; a template that dgem knows by its name is in the image.
template=${TEMPLATE:-support_triage}
own_template=
if [ -f "$template" ]; then
  local_file TEMPLATE "$template"
  own_template=$path
  template=/mnt/batch/$run/template.json.tmpl
else
  path=$root/templates/$template.json.tmpl
  formed TEMPLATE "$template" '[A-Za-z0-9_][A-Za-z0-9_/-]{0,99}' 'is neither a file nor a name' 'bin/dgem template list shows the names'
  [ -f "$path" ] || fail "TEMPLATE=$template is neither a file nor a template of dgem" 'bin/dgem template list shows the names'
fi
# What results belong to. With other rows, another template or other shares they would be mixed without a word.
begun="rows $form $(git hash-object --no-filters -- "$rows")
template $template $(git hash-object --no-filters -- "$path")
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
  shown "$scratch/run.txt"
  # Only if nobody else has begun it by now.
  apply storage cp "$scratch/run.txt" "gs://$batch_bucket/$run/run.txt" --if-generation-match=0
fi
allow_bucket "$batch_bucket" dgem-batch roles/storage.objectUser
bind run services add-iam-policy-binding "$service" "--region=$GCP_REGION" "--member=serviceAccount:$(account dgem-batch)" --role=roles/run.invoker
apply storage cp "$rows" "gs://$batch_bucket/$run/rows.$form"
[ -z "$own_template" ] || apply storage cp "$own_template" "gs://$batch_bucket/$run/template.json.tmpl"

sed -e "s|\${REGION}|$GCP_REGION|; s|\${PROJECT}|$GCP_PROJECT|; s|\${TASKS}|$tasks|; s|\${PARALLEL}|$parallel|; s|\${JOBS}|$jobs|" \
  -e "s|\${IMAGE}|$image@$digest|; s|\${RUN}|$run|; s|\${TEMPLATE}|$template|; s|\${URL}|$url|; s|\${BUCKET}|$batch_bucket|" \
  "$root/cloudrun/batch-job.yaml" >"$scratch/job.yaml"
shown "$scratch/job.yaml"
apply run jobs replace "$scratch/job.yaml" "--region=$GCP_REGION"
apply run jobs execute "$job" "--region=$GCP_REGION" --wait
say "results: gcloud storage cat 'gs://$batch_bucket/$run/results-*.jsonl'"
