#!/usr/bin/env bats
# The scripts of cloudrun/, run with a stub of gcloud.
load common

@test "build: the image of the GPU and the one for a CPU, each from its own file" {
  "$root/cloudrun/build.sh"
  golden build-l4
  dry build-l4 "$root/cloudrun/build.sh"
  : >"$CALLS"
  GPU=rtx BUILD_MACHINE=e2-highcpu-8 "$root/cloudrun/build.sh"
  golden build-rtx
}

@test "build: images that are there are not built again" {
  images_are_built
  run "$root/cloudrun/build.sh"
  [ "$status" -eq 0 ]
  [[ $output == *"$revision-cuda80 is there already: $digest"* && $output == *"$revision-cpu is there already"* ]]
  lacks "$CALLS" 'builds submit'
}

@test "settings that are missing or wrong stop every script before anything is made" {
  for script in build stage deploy teardown batch; do
    GCP_PROJECT='' refused 2 'GCP_PROJECT is not set' "$root/cloudrun/$script.sh"
    GCP_REGION='' refused 2 'GCP_REGION is not set' "$root/cloudrun/$script.sh"
    refused 2 "no argument but --dry-run, not '--force'" "$root/cloudrun/$script.sh" --force
  done
  GCP_REGION=us-west1 refused 2 'no nvidia-l4 in us-west1' "$root/cloudrun/deploy.sh"
  [[ $output == *europe-west4* ]]
  for script in build deploy; do
    GPU=h100 refused 2 'GPU=h100 is not known' "$root/cloudrun/$script.sh"
  done
  REVISION=main refused 2 'REVISION=main is no commit' "$root/cloudrun/stage.sh"
  REPO=justaname refused 2 'is no repository' "$root/cloudrun/stage.sh"
  for caller in allUsers allAuthenticatedUsers user: me@example.org; do
    INVOKER=$caller refused 2 "INVOKER=$caller is no caller" "$root/cloudrun/deploy.sh"
  done
  QUEUE=20 refused 2 'no room for a request of 32 draws' "$root/cloudrun/deploy.sh"
  WEIGHTS_BUCKET=$(printf 'b%.0s' {1..64}) refused 2 'is no name of a bucket' "$root/cloudrun/deploy.sh"
}

@test "images and weights for Compute Engine are made in regions where Cloud Run has no GPU" {
  images_are_built
  GCP_REGION=us-west1 "$root/cloudrun/build.sh"
  GCP_REGION=us-west1 REVISION=$commit "$root/cloudrun/stage.sh"
}

@test "a switch is off with 0, no, false and off, and takes no other word" {
  answer '*describe*' 0 'x\n'
  answer 'storage buckets list --filter=labels.app=dgem *' 0 'b\n'
  for off in 0 no false off ''; do
    ALL=$off "$root/cloudrun/teardown.sh"
    lacks "$CALLS" 'storage rm|accounts delete|repositories delete'
    ALL=$off "$root/gce/teardown.sh"
    lacks "$CALLS" 'accounts delete'
    DRY_RUN=$off "$root/cloudrun/build.sh"
    grep -q enable "$CALLS"
    : >"$CALLS"
  done
  for on in 1 yes true on; do
    DRY_RUN=$on "$root/cloudrun/build.sh"
    [ ! -s "$CALLS" ]
  done
  : >"$CALLS"
  DRY_RUN=maybe refused 2 'DRY_RUN=maybe is neither on nor off' "$root/cloudrun/build.sh"
  ALL=all refused 2 'ALL=all is neither on nor off' "$root/cloudrun/teardown.sh"
  ALL=all refused 2 'ALL=all is neither on nor off' "$root/gce/teardown.sh"
}

@test "an error that is not 'not found' is shown, and stops before anything is made" {
  fake gcloud <<'F'
#!/bin/bash
"$STUB" "$@" 2>/dev/null
case "$*" in *"$BROKEN"*) echo 'ERROR: PERMISSION_DENIED: no such right' >&2 && exit 1 ;; esac
"$STUB" "$@"
F
  export STUB=$root/scripts/tests/stub/gcloud
  BROKEN='service-accounts describe' run "$root/cloudrun/build.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'PERMISSION_DENIED: no such right'* ]]
  lacks "$CALLS" ' create |submit'
  images_are_built
  BROKEN='buckets list' REVISION=$commit run "$root/cloudrun/stage.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'PERMISSION_DENIED: no such right'* ]]
  lacks "$CALLS" ' create |submit'
  # Taking down goes on with the rest.
  BROKEN='services list' run "$root/cloudrun/teardown.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'could not list: gcloud run services list'* ]]
  grep -q 'jobs list' "$CALLS"
}

@test "a bucket of that name in somebody else's project is not used" {
  images_are_built
  subnet_is_there
  answer 'storage ls *' 0 "gs://x/$commit/$nvfp4/MANIFEST.json\n"
  answer 'storage cat *' 0 '{"files": [{"name": "a", "bytes": 1}]}'
  answer 'storage objects list *' 0 "$commit/$nvfp4/a,1\n"
  refused 2 'no complete copy' "$root/cloudrun/deploy.sh"
  answer 'storage buckets create *' 1
  REVISION=$commit run "$root/cloudrun/stage.sh"
  [ "$status" -ne 0 ]
  lacks "$CALLS" 'storage (ls|cat|objects)|add-iam|submit'
}

@test "a region by invitation is a note, not a refusal" {
  images_are_built
  weights_are_staged
  subnet_is_there
  answer 'run services describe *' 0 'https://dgemma-1.run.app\n'
  answer 'storage buckets list *' 0 'b\n'
  answer 'storage ls *' 0 "gs://my-project-dgem-weights-us-central1/$commit/$nvfp4/MANIFEST.json\n"
  GCP_REGION=us-central1 run "$root/cloudrun/deploy.sh"
  [ "$status" -eq 0 ]
  [[ $output == *'in us-central1 by invitation'* ]]
}

@test "what is not committed is not built under the name of a commit" {
  copy=$BATS_TEST_TMPDIR/copy
  mkdir "$copy"
  cp -r "$root/cloudrun" "$root/scripts" "$root/.gcloudignore" "$copy"
  git -C "$copy" init --quiet
  git -C "$copy" add .
  git -C "$copy" -c user.name=a -c user.email=a@a commit --quiet -m a
  unset DGEM_REVISION
  "$copy/cloudrun/build.sh"
  grep "_REVISION=$(git -C "$copy" rev-parse --short=12 HEAD) " "$CALLS"
  # Files that are not sent change no image.
  touch "$copy/rows.jsonl" "$copy/hub-token.txt"
  "$copy/cloudrun/build.sh"
  echo >>"$copy/cloudrun/build.sh"
  : >"$CALLS"
  refused 2 'not committed' "$copy/cloudrun/build.sh"
  ALLOW_DIRTY=0 refused 2 'not committed' "$copy/cloudrun/build.sh"
  ALLOW_DIRTY=1 "$copy/cloudrun/build.sh"
  grep -- '-dirty-cuda80' "$CALLS"
  # There may be an image of other changes under that tag.
  images_are_built
  : >"$CALLS"
  ALLOW_DIRTY=1 "$copy/cloudrun/build.sh"
  [ "$(grep -c 'builds submit' "$CALLS")" -eq 2 ]
}

@test "stage: downloads one commit and names it everywhere" {
  images_are_built
  REVISION=$commit "$root/cloudrun/stage.sh"
  golden stage
  REVISION=$commit dry stage "$root/cloudrun/stage.sh"
}

@test "stage: a branch is resolved once, to a commit" {
  images_are_built
  fake curl <<<"#!/bin/bash
echo \"\$*\" >>'$BATS_TEST_TMPDIR/asked'
echo '{\"sha\": \"$commit\"}'"
  "$root/cloudrun/stage.sh"
  grep -q "api/models/nvidia/$nvfp4\$" "$BATS_TEST_TMPDIR/asked"
  HF_ENDPOINT=https://hub.example "$root/cloudrun/stage.sh"
  grep -qF https://hub.example/api/models/ "$BATS_TEST_TMPDIR/asked"
  grep -qF ',_HUB=https://hub.example ' "$CALLS"
  grep -qF "_COMMIT=$commit," "$CALLS"
  fake curl <<<'#!/bin/bash
exit 22'
  : >"$CALLS"
  refused 2 'did not tell the newest commit' "$root/cloudrun/stage.sh"
}

@test "stage: complete weights are not staged again, half an upload is" {
  images_are_built
  export REVISION=$commit
  bucket_is_ours my-project-dgem-weights-europe-west4
  manifest='{"files": [{"name": "config.json", "bytes": 10}, {"name": "a.safetensors", "bytes": 999}]}'
  answer 'storage cat *MANIFEST.json *' 0 "$manifest"
  answer 'storage objects list *' 0 "$commit/$nvfp4/a.safetensors,999\n$commit/$nvfp4/config.json,10\n$commit/$nvfp4/MANIFEST.json,50\n"
  run "$root/cloudrun/stage.sh"
  [ "$status" -eq 0 ]
  [[ $output == *'complete already: 2 files'* ]]
  lacks "$CALLS" 'builds submit'
  for objects in '' "$commit/$nvfp4/config.json,10\n" "$commit/$nvfp4/a.safetensors,99\n$commit/$nvfp4/config.json,10\n"; do
    : >"$ANSWERS"
    : >"$CALLS"
    images_are_built
    bucket_is_ours my-project-dgem-weights-europe-west4
    answer 'storage cat *MANIFEST.json *' 0 "$manifest"
    answer 'storage objects list *' 0 "$objects"
    "$root/cloudrun/stage.sh"
    grep 'builds submit' "$CALLS"
  done
  # Everything but the manifest, which comes last.
  : >"$ANSWERS"
  : >"$CALLS"
  images_are_built
  "$root/cloudrun/stage.sh"
  grep 'builds submit' "$CALLS"
}

@test "stage: the token is named, and never seen" {
  images_are_built
  answer 'secrets describe hub-token *' 0 'hub-token\n'
  export REVISION=$commit HF_TOKEN=hf_canary HF_TOKEN_SECRET=hub-token
  "$root/cloudrun/stage.sh"
  golden stage-token
  lacks "$CALLS" hf_canary
  lacks "$KEPT/stage.yaml" hf_canary
  grep -q 'secretEnv: \[HF_TOKEN\]' "$KEPT/stage.yaml"
  grep -q 'secrets/${_SECRET}/versions/latest' "$KEPT/stage.yaml"
  lacks "$root/cloudrun/stage.yaml" '^[^#]*secretEnv'
  : >"$CALLS"
  HF_TOKEN_SECRET=other refused 2 'there is no secret other' "$root/cloudrun/stage.sh"
}

@test "upload: the manifest comes last, with the sum of every file" {
  folder="$BATS_TEST_TMPDIR/a model"
  mkdir -p "$folder/sub"
  printf '{}' >"$folder/config.json"
  printf 'weights' >"$folder/sub/a.safetensors"
  touch "$folder/.complete"
  to=gs://b/$commit/m
  listed="$commit/m/config.json,2\n$commit/m/sub/a.safetensors,7\n"
  answer 'storage objects list *' 0 "$listed"
  bash "$root/cloudrun/upload.sh" "$folder" "$to" owner/m "$commit"
  [ "$(jq -c '[.repo, .commit, (.files | length)]' "$KEPT/uploaded")" = "[\"owner/m\",\"$commit\",2]" ]
  [ "$(jq -r '.files[1].sha256' "$KEPT/uploaded")" = "$(printf weights | sha256sum | cut -d ' ' -f 1)" ]
  head -n 1 "$CALLS" | grep -q 'storage rm .*MANIFEST.json'
  tail -n 1 "$CALLS" | grep -q 'storage cp .*MANIFEST.json'
  # A file that is short there.
  : >"$ANSWERS"
  : >"$CALLS"
  answer 'storage objects list *' 0 "${listed/,7/,6}"
  run bash "$root/cloudrun/upload.sh" "$folder" "$to" owner/m "$commit"
  [ "$status" -ne 0 ]
  [[ $output == *'sub/a.safetensors is not there in its 7 bytes'* ]]
  lacks "$CALLS" 'storage cp'
  # An earlier manifest that stays would call files whole that are being replaced.
  : >"$ANSWERS"
  : >"$CALLS"
  answer 'storage rm *' 1
  answer 'storage ls *' 0 "$to/MANIFEST.json\n"
  answer 'storage objects list *' 0 "$listed"
  run bash "$root/cloudrun/upload.sh" "$folder" "$to" owner/m "$commit"
  [ "$status" -ne 0 ]
  [[ $output == *'cannot be removed'* ]]
  lacks "$CALLS" 'storage (rsync|cp)'
  run bash "$root/cloudrun/upload.sh" "$folder/sub" "$to" owner/m "$commit"
  [ "$status" -ne 0 ]
  [[ $output == *'holds no checkpoint'* ]]
}

@test "deploy: one GPU of each kind" {
  images_are_built
  weights_are_staged
  subnet_is_there
  answer 'run services describe *' 0 'https://dgemma-1.run.app\n'
  run "$root/cloudrun/deploy.sh"
  [ "$status" -eq 0 ]
  golden deploy-l4
  [[ $output == *'dgem decide -u https://dgemma-1.run.app/v1 --gcp-auth'* ]]
  dry deploy-l4 "$root/cloudrun/deploy.sh"
  : >"$CALLS"
  GPU=rtx NETWORK=none INVOKER=user:me@example.org "$root/cloudrun/deploy.sh"
  golden deploy-rtx
  lacks "$CALLS" '--cpu=8'
}

@test "deploy: a service without an address is a failure, not an invented address" {
  images_are_built
  weights_are_staged
  subnet_is_there
  run "$root/cloudrun/deploy.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'tells no address'* && $output != *SERVICE-URL* ]]
}

@test "deploy: the same command the second time" {
  images_are_built
  weights_are_staged
  subnet_is_there
  answer 'run services describe *' 0 'https://dgemma-1.run.app\n'
  "$root/cloudrun/deploy.sh"
  cp "$CALLS" "$BATS_TEST_TMPDIR/first"
  : >"$CALLS"
  answer 'iam service-accounts describe *' 0 'there\n'
  "$root/cloudrun/deploy.sh"
  diff <(grep -v 'service-accounts create' "$BATS_TEST_TMPDIR/first") "$CALLS"
}

@test "deploy: an instance is sent as many requests as find places for the most draws" {
  reads=$(sed -nE 's/^ *max_reads: ([0-9]+),.*/\1/p' "$root/decision/src/limits.rs")
  places=$(sed -nE '/"DGEMMA_QUEUE"/s/.*default_value_t = ([0-9]+),.*/\1/p' "$root"/dgemma-server/src/cli/*.rs)
  # The numbers that the script reckons with.
  grep -qx "most_draws=$reads" "$root/cloudrun/deploy.sh"
  grep -qF "queue_places=\${QUEUE:-$places}" "$root/cloudrun/deploy.sh"
  grep -q -- "--concurrency=$((places / reads)) " "$BATS_TEST_DIRNAME/golden/deploy-l4.txt"
}

@test "deploy: as many instances as the decisions that are wanted at a time need, or as many as are named" {
  images_are_built
  weights_are_staged
  subnet_is_there
  answer 'run services describe *' 0 'https://dgemma-1.run.app\n'
  while read -r settings concurrency instances; do
    : >"$CALLS"
    # shellcheck disable=SC2086 # several words
    env ${settings//;/ } "$root/cloudrun/deploy.sh"
    grep -q -- " --concurrency=$concurrency .* --max-instances=$instances " "$CALLS" || { echo "$settings" && false; }
  done <<'F'
A=1 64 3
CONCURRENT_DECISIONS=1 64 1
CONCURRENT_DECISIONS=64 64 1
CONCURRENT_DECISIONS=65 64 2
QUEUE=4096 128 2
QUEUE=32 1 192
QUEUE=1000000 1000 1
QUEUE=64;CONCURRENT_DECISIONS=5 2 3
MAX_INSTANCES=7;CONCURRENT_DECISIONS=1 64 7
F
}

@test "deploy: without the image or the weights nothing is deployed, and nobody else's image is taken" {
  subnet_is_there
  weights_are_staged
  refused 2 "there is no image europe-west4-docker.pkg.dev/my-project/dgem/dgemma:$revision-cuda80" "$root/cloudrun/deploy.sh"
  [[ $output == *'make cloudrun-build'* ]]
  : >"$ANSWERS"
  images_are_built
  subnet_is_there
  refused 2 'no complete copy' "$root/cloudrun/deploy.sh"
  [[ $output == *'make cloudrun-stage'* ]]
  bucket_is_ours my-project-dgem-weights-europe-west4
  answer 'storage ls *' 0 "gs://b/1/m/MANIFEST.json\ngs://b/2/m/MANIFEST.json\n"
  refused 2 'several commits' "$root/cloudrun/deploy.sh"
  : >"$ANSWERS"
  images_are_built
  weights_are_staged
  run "$root/cloudrun/deploy.sh"
  [ "$status" -eq 2 ]
  [[ $output == *'no subnet default in europe-west4'* && $output == *NETWORK=none* ]]
}

@test "a role for an account made a moment ago is tried again" {
  images_are_built
  weights_are_staged
  subnet_is_there
  answer '*add-iam-policy-binding*' 1
  run "$root/cloudrun/deploy.sh"
  [ "$status" -ne 0 ]
  [ "$(grep -c add-iam-policy-binding "$CALLS")" -eq 5 ]
  [[ $output == *'this command failed: gcloud storage buckets add-iam-policy-binding'*hint:* ]]
  lacks "$CALLS" 'run deploy'
}

@test "batch: rows up, the job filled in and run" {
  images_are_built
  answer 'run services describe *' 0 'https://dgemma-1.run.app\n'
  export ROWS="$BATS_TEST_TMPDIR/my rows.jsonl" TASKS=200 PARALLEL=50 JOBS=4 RUN=first
  echo '{}' >"$ROWS"
  # The rows are sent last, and stand in $KEPT/uploaded.
  "$root/cloudrun/batch.sh"
  golden batch
  dry batch "$root/cloudrun/batch.sh"
  # The files that the commands name are gone then, so what stands in them is shown.
  grep -q 'job.yaml holds:' "$BATS_TEST_TMPDIR/told"
  grep -q '  taskCount: 200' "$BATS_TEST_TMPDIR/told"
  grep -q 'dry run: .* none is run' "$BATS_TEST_TMPDIR/told"
  cp "$KEPT/job.yaml" "$BATS_TEST_TMPDIR/filled.yaml"
  lacks "$KEPT/job.yaml" '^[^#]*[$][{]'
  grep -q 'taskCount: 200' "$KEPT/job.yaml"
  grep -q 'value: https://dgemma-1.run.app/v1' "$KEPT/job.yaml"
  # A template of one's own is taken along.
  TEMPLATE=$root/templates/support_triage.json.tmpl "$root/cloudrun/batch.sh"
  grep -q /mnt/batch/first/template.json.tmpl "$KEPT/job.yaml"
  grep -q 'storage cp ROOT/templates/support_triage.json.tmpl gs://my-project-dgem-batch-europe-west4/first/template.json.tmpl' <(plain "$CALLS")
}

@test "batch: rows, service and numbers are checked first" {
  images_are_built
  ROWS='' refused 2 'ROWS is not set' "$root/cloudrun/batch.sh"
  ROWS=/nowhere.jsonl refused 2 'there is no file /nowhere.jsonl' "$root/cloudrun/batch.sh"
  rows=$BATS_TEST_TMPDIR/r.csv
  touch "$rows"
  ROWS=$rows refused 2 'cannot be read, or is empty' "$root/cloudrun/batch.sh"
  echo id,ticket >"$rows"
  ROWS=$rows TASKS=many refused 2 'TASKS=many is no whole number' "$root/cloudrun/batch.sh"
  ROWS=$rows TASKS=10001 refused 2 'more than a job may have' "$root/cloudrun/batch.sh"
  ROWS=$rows refused 2 'RUN is not set' "$root/cloudrun/batch.sh"
  export RUN=first
  ROWS=$rows TEMPLATE='a b' refused 2 'neither a file nor a name' "$root/cloudrun/batch.sh"
  ROWS=$rows TEMPLATE=suport_triage refused 2 'neither a file nor a template of dgem' "$root/cloudrun/batch.sh"
  cp "$rows" "$BATS_TEST_TMPDIR/my[1].csv"
  ROWS="$BATS_TEST_TMPDIR/my[1].csv" refused 2 'a pattern' "$root/cloudrun/batch.sh"
  ROWS=$rows RUN=../up refused 2 'is no name' "$root/cloudrun/batch.sh"
  ROWS=$rows refused 2 'there is no service dgemma' "$root/cloudrun/batch.sh"
}

@test "batch: a run that was begun goes on with the same, and is not mixed with other rows, shares or templates" {
  images_are_built
  answer 'run services describe *' 0 'https://dgemma-1.run.app\n'
  export ROWS=$BATS_TEST_TMPDIR/rows.jsonl TEMPLATE=$BATS_TEST_TMPDIR/own.tmpl RUN=first TASKS=20
  echo '{}' >"$ROWS"
  echo '{}' >"$TEMPLATE"
  fake gcloud <<'F'
#!/bin/bash
case "$*" in 'storage cp '*/run.txt' 'gs:*) cp "$3" "$KEPT/run.txt" ;; 'storage cat '*/run.txt*) [ ! -e "$KEPT/run.txt" ] || exec cat "$KEPT/run.txt" ;; esac
exec "$STUB" "$@"
F
  export STUB=$root/scripts/tests/stub/gcloud
  "$root/cloudrun/batch.sh"
  "$root/cloudrun/batch.sh"
  [ "$(grep -c 'jobs execute' "$CALLS")" -eq 2 ]
  cp "$ROWS" "$BATS_TEST_TMPDIR/rows.csv"
  echo '{"id": 1}' >"$BATS_TEST_TMPDIR/more.jsonl"
  echo '{"a": 1}' >"$BATS_TEST_TMPDIR/other.tmpl"
  for change in TASKS=21 ROWS="$BATS_TEST_TMPDIR/rows.csv" ROWS="$BATS_TEST_TMPDIR/more.jsonl" TEMPLATE=support_triage TEMPLATE="$BATS_TEST_TMPDIR/other.tmpl"; do
    run env "$change" "$root/cloudrun/batch.sh"
    [ "$status" -eq 2 ]
    [[ $output == *'RUN=first was begun with other'*hint:* ]]
  done
  [ "$(grep -c 'jobs execute' "$CALLS")" -eq 2 ]
}

# A dgem that appends its shard to the output, and says how it was called.
batch_dgem() {
  fake dgem <<'F'
#!/bin/bash
echo "$*" >>"$CALLS"
while [ $# -gt 0 ]; do case $1 in -o) out=$2 ;; esac; shift; done
trap 'echo "{\"id\":\"stopped\"}" >>"$out"; exit 130' TERM
echo "{\"id\":\"$CLOUD_RUN_TASK_INDEX\"}" >>"$out"
[ -z "$SLOW" ] || { touch "$SLOW"; sleep 5 & wait $!; }
exit "${DGEM_EXIT:-0}"
F
}

@test "batch task: goes on with what an earlier try left, and keeps what failed" {
  batch_dgem
  folder="$BATS_TEST_TMPDIR/my rows"
  mkdir "$folder"
  touch "$folder/rows.jsonl"
  export CLOUD_RUN_TASK_INDEX=3
  "$root/cloudrun/batch-task.sh" "$folder" -t support_triage
  [ "$(cat "$folder/results-3.jsonl")" = '{"id":"3"}' ]
  DGEM_EXIT=6 run "$root/cloudrun/batch-task.sh" "$folder" -t support_triage
  [ "$status" -eq 6 ]
  [ "$(wc -l <"$folder/results-3.jsonl")" -eq 2 ]
  grep -q -- '--resume -t support_triage' "$CALLS"
  run "$root/cloudrun/batch-task.sh" "$BATS_TEST_TMPDIR"
  [ "$status" -eq 2 ]
}

@test "batch task: the signal to stop reaches dgem, and its results are kept" {
  batch_dgem
  folder=$BATS_TEST_TMPDIR/rows
  mkdir "$folder"
  touch "$folder/rows.jsonl"
  export CLOUD_RUN_TASK_INDEX=0 SLOW=$BATS_TEST_TMPDIR/started
  "$root/cloudrun/batch-task.sh" "$folder" 3>&- &
  task=$!
  for _ in $(seq 100); do [ -e "$SLOW" ] && break || sleep 0.05; done
  kill -TERM "$task"
  code=0
  wait "$task" || code=$?
  [ "$code" -eq 130 ]
  grep -q stopped "$folder/results-0.jsonl"
}

@test "batch task: results are kept while it runs, and a dgem that does not end is told again" {
  fake dgem <<'F'
#!/bin/bash
while [ $# -gt 0 ]; do case $1 in -o) out=$2 ;; esac; shift; done
trap 'stops=$((stops + 1)); [ "$stops" -lt 2 ] || exit 130' TERM
stops=0
echo '{"id":"1"}' >>"$out"
for _ in $(seq 200); do sleep 0.05; done
F
  folder=$BATS_TEST_TMPDIR/rows
  mkdir "$folder"
  touch "$folder/rows.jsonl"
  CLOUD_RUN_TASK_INDEX=0 KEEP_SECONDS=0.1 STOP_SECONDS=0.2 "$root/cloudrun/batch-task.sh" "$folder" 3>&- &
  task=$!
  for _ in $(seq 100); do [ -s "$folder/results-0.jsonl" ] && break || sleep 0.05; done
  kill -0 "$task"
  [ "$(cat "$folder/results-0.jsonl")" = '{"id":"1"}' ]
  kill -TERM "$task"
  code=0
  wait "$task" || code=$?
  [ "$code" -eq 130 ]
}

# In a shell of its own: server.sh sets a trap for its end, and so does bats.
two_tasks() (
  . "$root/scripts/server.sh"
  start_server "$root/fixtures/demo-model" 3>&-
  export DGEM_URL=$url/v1 CLOUD_RUN_TASK_COUNT=2
  for CLOUD_RUN_TASK_INDEX in 0 1 0; do
    export CLOUD_RUN_TASK_INDEX
    "$root/cloudrun/batch-task.sh" "$1" -t support_triage --jobs 2
  done
)

@test "batch task: the real dgem shares the rows, and asks nothing twice" {
  [ -x "$root/bin/dgem" ] && [ -x "$root/bin/dgemma-server" ] || skip "not checked: bin/ is not built"
  fake dgem <<<"#!/bin/bash
exec '$root/bin/dgem' \"\$@\""
  folder=$BATS_TEST_TMPDIR/rows
  mkdir "$folder"
  for id in 1 2 3 4 5; do echo "{\"id\": \"$id\", \"ticket\": \"I was charged twice.\"}"; done >"$folder/rows.jsonl"
  two_tasks "$folder"
  [ "$(jq -r .id "$folder"/results-*.jsonl | sort | tr -d '\n')" = 12345 ]
  [ "$(jq -r .id "$folder/results-0.jsonl" | sort | tr -d '\n')" = 135 ]
}

@test "the scripts work from any directory and with spaces in their path" {
  copy="$BATS_TEST_TMPDIR/a b/c"
  mkdir -p "$copy"
  cp -r "$root/cloudrun" "$root/gce" "$root/scripts" "$copy"
  images_are_built
  answer 'run services describe *' 0 'https://dgemma-1.run.app\n'
  weights_are_staged
  subnet_is_there
  # A `cd` that looks elsewhere, and says so.
  export CDPATH=$BATS_TEST_TMPDIR:.
  cd "$copy"
  cloudrun/build.sh
  cd /
  "$copy/cloudrun/build.sh"
  REVISION=$commit "$copy/cloudrun/stage.sh"
  "$copy/cloudrun/deploy.sh"
  "$copy/cloudrun/teardown.sh"
  answer 'compute machine-types describe *' 0 x
  answer '*get-serial-port-output*' 0 'dgem-startup: ready\n'
  GCP_ZONE=europe-west4-a "$copy/gce/deploy.sh"
  "$copy/gce/teardown.sh"
}

@test "nothing is left behind in the temporary folder, also after a failure" {
  export TMPDIR=$BATS_TEST_TMPDIR/tmp
  mkdir "$TMPDIR"
  "$root/cloudrun/build.sh"
  GCP_REGION=us-west1 run "$root/cloudrun/deploy.sh"
  [ "$status" -eq 2 ]
  [ -z "$(ls -A "$TMPDIR")" ]
}
