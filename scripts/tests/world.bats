#!/usr/bin/env bats
# All scripts of cloudrun/ and gce/ in a small cloud that keeps what is made in it (world/gcloud): failures at every step,
# interruptions, two people at a time, hostile settings, and teardown to nothing.
load common

# Everything that the scripts make, in their order.
prepare() {
  [ -n "${WORLD:-}" ] || small_cloud
  mkdir -p "$WORLD"
  export REVISION=$commit GCP_ZONE=europe-west4-a ROWS=$BATS_TEST_TMPDIR/rows.jsonl RUN=first INVOKER=user:a@example.org
  export SOURCE_RANGE=203.0.113.7/32 API_KEY_SECRET=dgem-key HF_TOKEN_SECRET=hub-token
  echo '{"ticket": "a"}' >"$ROWS"
  gcloud services enable secretmanager.googleapis.com
  for secret in "$API_KEY_SECRET" "$HF_TOKEN_SECRET"; do gcloud secrets create "$secret" --data-file=- </dev/null; done
}
# The same with everything made, once for all tests of this file.
deployed() {
  prepare
  if [ ! -e "$BATS_FILE_TMPDIR/deployed" ]; then
    for script in "${makers[@]}"; do "$root/$script.sh"; done >/dev/null 2>&1
    cp -r "$WORLD" "$BATS_FILE_TMPDIR/deployed"
  fi
  rm -r "$WORLD"
  cp -r "$BATS_FILE_TMPDIR/deployed" "$WORLD"
  : >"$CALLS"
}
makers=(cloudrun/build cloudrun/stage cloudrun/deploy cloudrun/batch gce/deploy)
takers=(gce/teardown cloudrun/teardown)
# What a script says, or prints, when all is done.
done_words='next: make|deployed\. Try|results: gcloud|deletes itself after|remains in my-project'

# Runs a script until it succeeds. Each time it fails it must say why and what to do, and not that it is done.
until_done() {
  local tries=0
  while true; do
    run "$root/$1.sh"
    [ "$status" -ne 0 ] || break
    [[ $output == *'error: '*'hint: '* ]] || { echo "$1 says too little: $output" && return 1; }
    [[ ! $output =~ $done_words ]] || { echo "$1 says that it is done: $output" && return 1; }
    tries=$((tries + 1))
    [ "$tries" -lt 40 ] || { echo "$1 never ends: $output" && return 1; }
  done
  failures=$((${failures:-0} + tries))
}

# each_fails: every command of every script fails once. In the end there is what there is without failures, and after teardown nothing.
each_fails() {
  deployed
  export ALL=1
  things >"$BATS_TEST_TMPDIR/wanted"
  [ "$(wc -l <"$BATS_TEST_TMPDIR/wanted")" -ge 14 ]
  rm -r "$WORLD"
  prepare
  export FAILED=$BATS_TEST_TMPDIR/failed
  : >"$FAILED"
  for script in "${makers[@]}"; do until_done "$script"; done
  diff "$BATS_TEST_TMPDIR/wanted" <(things)
  for script in "${takers[@]}"; do until_done "$script"; done
  [ "$(things)" = "$(printf './secret/%s\n' dgem-key hub-token)" ]
}

@test "every command may fail: the script says so and stops, and run again it repairs what was left" {
  each_fails
  [ "$failures" -ge 50 ]
}

@test "every reply may be lost after the work was done: run again, nothing is made twice and nothing is forgotten" {
  export LATE=1
  each_fails
  [ "$failures" -ge 20 ]
}

@test "Ctrl-C ends the script with 130, and run again it goes on" {
  prepare
  for script in "${makers[@]}" gce/teardown cloudrun/teardown; do
    for at in 2 6; do
      : >"$CALLS"
      code=0
      # In a group of its own, which is what a terminal interrupts; a test in the background is born deaf to it.
      BROKEN_AT=$at env --default-signal=INT setsid --wait "$root/$script.sh" >"$BATS_TEST_TMPDIR/told" 2>&1 3>&- </dev/null || code=$?
      [ "$code" -eq 130 ] || { echo "$script at $at: $code" && cat "$BATS_TEST_TMPDIR/told" && false; }
      grep -q 'Run the same again' "$BATS_TEST_TMPDIR/told"
      lacks "$BATS_TEST_TMPDIR/told" "$done_words"
    done
    "$root/$script.sh"
  done
}

@test "two people who do the same at a time come to the same" {
  prepare
  for script in "${makers[@]}"; do
    "$root/$script.sh" >"$BATS_TEST_TMPDIR/one" 2>&1 3>&- &
    other=$!
    "$root/$script.sh" >"$BATS_TEST_TMPDIR/two" 2>&1 || true
    wait "$other" || true
    # Whoever was too late is told to run again, and need only do that.
    for told in one two; do
      [[ $(<"$BATS_TEST_TMPDIR/$told") =~ $done_words ]] || grep -q '^hint: .*again' "$BATS_TEST_TMPDIR/$told"
    done
    "$root/$script.sh"
  done
  [ "$(things | wc -l)" -ge 14 ]
}

@test "what somebody else makes at the same moment is taken, and not an error" {
  prepare
  fake gcloud <<'F'
#!/bin/bash
case "$*" in *' create '*) "$REAL" "$@" && echo 'ERROR: ALREADY_EXISTS' >&2 && exit 1 ;; esac
exec "$REAL" "$@"
F
  export REAL=$root/scripts/tests/world/gcloud PATH=$BATS_TEST_TMPDIR/bin:$PATH
  for script in build stage deploy batch; do "$root/cloudrun/$script.sh"; done
  # Not a machine: what it was made with is looked at first.
  run "$root/gce/deploy.sh"
  [ "$status" -eq 1 ]
  "$root/gce/deploy.sh"
}

@test "two batches at a time are two jobs, and a run is begun only once" {
  deployed
  RUN=second "$root/cloudrun/batch.sh"
  [ "$(things | grep -c ^./job/)" -eq 2 ]
  grep -q 'run jobs execute dgem-batch-second ' "$CALLS"
  # Somebody else begins it between our question and our answer.
  fake gcloud <<'F'
#!/bin/bash
case "$*" in 'storage cat '*/third/run.txt*) "$REAL" "$@" || { cp "$WORLD"/object/*'|second|run.txt' "$WORLD/object/my-project-dgem-batch-europe-west4|third|run.txt" && exit 1; } ;; esac
exec "$REAL" "$@"
F
  export REAL=$root/scripts/tests/world/gcloud PATH=$BATS_TEST_TMPDIR/bin:$PATH
  RUN=third TASKS=7 run "$root/cloudrun/batch.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'pre-conditions'*hint:* ]]
  RUN=third TASKS=7 run "$root/cloudrun/batch.sh"
  [ "$status" -eq 2 ]
}

@test "no setting, whatever is in it, becomes a flag, a command or a second value, and none passes unread" {
  prepare
  export CANARY=$BATS_TEST_TMPDIR/canary
  long=$(printf 'x%.0s' {1..5000})
  settings=$(given "$root"/cloudrun/{build,stage,deploy,batch,teardown}.sh "$root"/gce/{deploy,size,teardown}.sh "$root"/scripts/{cloud,settings,teardown}.sh |
    grep -vE '^(DRY_RUN|BIND_WAIT_SECONDS|ALLOW_DIRTY|DGEM_REVISION)$')
  [ "$(wc -w <<<"$settings")" -ge 25 ]
  for name in $settings DGEM_REVISION; do
    case $name in
      GPU | QUEUE | MAX_INSTANCES | CONCURRENT_DECISIONS | INVOKER | DTYPE) script=cloudrun/deploy ;;
      ROWS | RUN | TASKS | PARALLEL | JOBS | TEMPLATE | SERVICE | BATCH_BUCKET) script=cloudrun/batch ;;
      HF_*) script=cloudrun/stage ;;
      BUILD_*) script=cloudrun/build ;;
      ALL) script=cloudrun/teardown ;;
      GCP_REGION) script=cloudrun/deploy ;;
      *) script=gce/deploy ;;
    esac
    for value in --help 'a[$(touch $CANARY)]`touch $CANARY`' "'\"; touch \$CANARY; ü"$'\n,c=d' "$long"; do
      : >"$CALLS"
      run env "$name=$value" "$root/$script.sh"
      [ "$status" -eq 2 ] || { echo "$name=$value: exit $status: $output" && false; }
      [[ $output == *'error: '*"$name"*'hint: '* || $output == *'there is no file'* ]] || { echo "$name=$value: $output" && false; }
      [ ${#output} -lt 1000 ] || { echo "$name: ${#output} characters" && false; }
      [ ! -s "$CALLS" ]
    done
  done
  [ ! -e "$CANARY" ]
}

@test "a setting that is empty is one that is not set" {
  deployed
  for script in build stage deploy; do "$root/cloudrun/$script.sh"; done
  cp "$CALLS" "$BATS_TEST_TMPDIR/unset"
  : >"$CALLS"
  for name in GPU QUEUE MAX_INSTANCES CONCURRENT_DECISIONS CTX QUANT DTYPE NETWORK SUBNET SERVICE BUILD_MACHINE WEIGHTS_BUCKET BUILD_BUCKET HF_ENDPOINT REPO; do
    export "$name="
  done
  for script in build stage deploy; do "$root/cloudrun/$script.sh"; done
  diff <(grep 'run deploy' "$BATS_TEST_TMPDIR/unset") <(grep 'run deploy' "$CALLS")
}

@test "without gcloud, git, a temporary folder, a terminal or a home each script says what is missing, or does without" {
  prepare
  # Programs by their links, without gcloud and git.
  mkdir "$BATS_TEST_TMPDIR/few"
  for name in bash env basename dirname mktemp rm sed cat tr cut cksum grep wc jq curl; do ln -s "$(command -v "$name")" "$BATS_TEST_TMPDIR/few/$name"; done
  for script in "${makers[@]}" "${takers[@]}"; do
    PATH=$BATS_TEST_TMPDIR/few run "$root/$script.sh"
    [ "$status" -eq 2 ]
    [[ $output == *'gcloud is not installed'*hint:* ]]
    TMPDIR=/nowhere run "$root/$script.sh"
    [ "$status" -eq 2 ]
    [[ $output == *'no temporary folder'*TMPDIR* ]]
  done
  ln -s "$root/scripts/tests/world/gcloud" "$BATS_TEST_TMPDIR/few/gcloud"
  DGEM_REVISION='' PATH=$BATS_TEST_TMPDIR/few run "$root/cloudrun/build.sh"
  [ "$status" -eq 2 ]
  [[ $output == *'git is not installed'*hint:* ]]
  cp -r "$root/cloudrun" "$root/scripts" "$BATS_TEST_TMPDIR"
  GIT_CEILING_DIRECTORIES=$BATS_TEST_TMPDIR DGEM_REVISION='' run "$BATS_TEST_TMPDIR/cloudrun/build.sh"
  [ "$status" -eq 2 ]
  [[ $output == *'git tells no revision'*DGEM_REVISION* ]]
  for script in "${makers[@]}"; do env -u HOME setsid --wait "$root/$script.sh" </dev/null 3>&-; done
}

@test "secrets that stand in the environment are in no command, no output and no file" {
  prepare
  export HF_TOKEN=canary DGEMMA_API_KEYS=canary DGEM_TOKEN=canary DGEM_API_KEY=canary
  for script in "${makers[@]}" "${takers[@]}"; do
    "$root/$script.sh" >"$BATS_TEST_TMPDIR/told" 2>&1
    lacks "$BATS_TEST_TMPDIR/told" canary
    DRY_RUN=1 "$root/$script.sh" >"$BATS_TEST_TMPDIR/told" 2>&1
    lacks "$BATS_TEST_TMPDIR/told" canary
  done
  lacks "$CALLS" canary
  run grep -rq canary "$WORLD" "$root/cloudrun" "$root/gce"
  [ "$status" -eq 1 ]
}

@test "teardown: what costs by the hour goes, the rest is listed" {
  deployed
  run "$root/cloudrun/teardown.sh"
  [ "$status" -eq 0 ]
  golden teardown
  [[ $output == *'buckets: gs://my-project-dgem-weights-europe-west4'* && $output == *ALL=1* ]]
  [ "$(things | grep -cE '^./(service|job)/')" -eq 0 ]
  DRY_RUN=1 run "$root/cloudrun/teardown.sh"
  [[ $output == *'gcloud run services delete NAME --region=europe-west4 --quiet'* ]]
  # The second time there is nothing to delete.
  : >"$CALLS"
  "$root/cloudrun/teardown.sh"
  lacks "$CALLS" ' (delete|rm) '
}

@test "teardown: with SERVICE the others run on, which is said" {
  deployed
  SERVICE=other "$root/cloudrun/deploy.sh"
  SERVICE=other run "$root/cloudrun/teardown.sh"
  [ "$status" -eq 0 ]
  [[ $output == *'services: dgemma'*'other is gone. The other services cost'* ]]
  [ "$(things | grep ^./service/)" = './service/europe-west4|dgemma' ]
  # All is all.
  SERVICE=other ALL=1 "$root/cloudrun/teardown.sh"
  lacks <(things) '^./service/'
}

@test "teardown: ALL=1 leaves nothing, but what has no label and what other regions use" {
  deployed
  gcloud storage buckets create gs://mine --location=europe-west4
  mkdir -p "$WORLD/repository"
  echo >"$WORLD/repository/europe-west4|unlabelled"
  GCP_REGION=us-east4 "$root/cloudrun/build.sh"
  : >"$CALLS"
  ALL=1 WEIGHTS_BUCKET=mine run "$root/cloudrun/teardown.sh"
  [ "$status" -eq 0 ]
  golden teardown-all
  [[ $output == *'the bucket mine stays'*'the accounts stay'*'nothing of dgem remains in my-project, europe-west4'* ]]
  things | grep -qx './bucket/mine'
  things | grep -qF 'europe-west4|unlabelled'
  [ "$(things | grep -cE '^./account/dgem-(run|build|batch)@')" -eq 3 ]
  GCP_REGION=us-east4 ALL=1 "$root/cloudrun/teardown.sh"
  [ "$(things | grep -cE '^./account/dgem-(run|build|batch)@')" -eq 0 ]
}

@test "teardown: what cannot be deleted or listed is a failure, and keeps nothing else" {
  deployed
  fake gcloud <<'F'
#!/bin/bash
case "$*" in *"$BROKEN"*) echo 'ERROR: PERMISSION_DENIED: no such right' >&2 && exit 1 ;; esac
exec "$REAL" "$@"
F
  export REAL=$root/scripts/tests/world/gcloud PATH=$BATS_TEST_TMPDIR/bin:$PATH
  for broken in 'services delete' 'services list'; do
    BROKEN=$broken run "$root/cloudrun/teardown.sh"
    [ "$status" -eq 1 ]
    [[ $output == *'PERMISSION_DENIED: no such right'*'not everything that should be gone is gone'* ]]
  done
  things | grep -q ^./service/
  [ "$(things | grep -c ^./job/)" -eq 0 ]
  BROKEN='instances delete' run "$root/gce/teardown.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'machines: dgem-4 (europe-west4-a)'* ]]
  BROKEN='disks list' run "$root/gce/teardown.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'could not list: gcloud compute disks list'* ]]
  [ "$(things | grep -c ^./machine/)" -eq 0 ]
}

@test "teardown: with VM the other machines stay, and the rules that they need" {
  deployed
  VM=mine "$root/gce/deploy.sh"
  VM=mine run "$root/gce/teardown.sh"
  [ "$status" -eq 0 ]
  [[ $output == *'rules stay'*'no machine mine remains'* ]]
  [ "$(things | grep -cE '^./(machine|disk|rule)/')" -eq 3 ]
  VM=dgem-4 "$root/gce/teardown.sh"
  lacks <(things) '^./(machine|disk|rule)/'
}

@test "teardown: machines in all zones, with the disks they had and those that outlived theirs, and no other" {
  deployed
  disk="$WORLD/disk/europe-west4-a|"
  # Of a machine that deleted itself; of a machine that is there, not yet labelled and not deleted with it; somebody's.
  printf 'app=dgem\t' >"${disk}dgem-8"
  : >"${disk}dgem-4"
  : >"${disk}mine"
  fake gcloud <<'F'
#!/bin/bash
case "$*" in 'compute instances delete '*) cp "$WORLD/disk/europe-west4-a|dgem-4" "$WORLD/kept" && "$REAL" "$@" && mv "$WORLD/kept" "$WORLD/disk/europe-west4-a|dgem-4" && exit ;; esac
exec "$REAL" "$@"
F
  export REAL=$root/scripts/tests/world/gcloud PATH=$BATS_TEST_TMPDIR/bin:$PATH
  : >"$CALLS"
  run "$root/gce/teardown.sh"
  [ "$status" -eq 0 ]
  golden gce-teardown
  [[ $output == *'no machine, disk or rule of dgem remains'* ]]
  [ "$(things | grep ^./disk/)" = './disk/europe-west4-a|mine' ]
  DRY_RUN=1 ALL=1 run "$root/gce/teardown.sh"
  [[ $output == *'gcloud compute instances delete NAME --delete-disks=all'* ]]
}
