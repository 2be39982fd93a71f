#!/usr/bin/env bats
# The YAML of cloudrun/ says what the scripts say.
load common

agrees() { "${PYTHON:-python3}" "$root/scripts/tests/yaml_agrees.py" "$root" "$@"; }

@test "service.yaml is what deploy.sh deploys on an L4" {
  agrees service "$root/cloudrun/service.yaml"
  # And the check can fail.
  for change in 's/failureThreshold: 120/failureThreshold: 500/' 's/nvidia-l4/nvidia-rtx-pro-6000/' 's/maxScale: .3/maxScale: '\''9/' \
    's/readOnly: true/readOnly: false/' 's/2048/4096/'; do
    sed "$change" "$root/cloudrun/service.yaml" >"$BATS_TEST_TMPDIR/changed.yaml"
    run agrees service "$BATS_TEST_TMPDIR/changed.yaml"
    [ "$status" -ne 0 ]
  done
}

# The folder of the Google Cloud CLI's own sources.
sdk_folder() {
  real=$(PATH=${PATH//"$root/scripts/tests/stub:"/} command -v gcloud) || skip "not checked: the Google Cloud CLI is not installed"
  sdk=$(CLOUDSDK_CONFIG=$BATS_TEST_TMPDIR/config "$real" info --format='value(installation.sdk_root)')
  [ -f "$sdk/lib/googlecloudsdk/generated_clients/apis/run/v1/run_v1_messages.py" ] || skip "not checked: this Google Cloud CLI has no sources"
}

@test "gcloud's own client knows every field and annotation of the files" {
  sdk_folder
  reads() { "${PYTHON:-python3}" "$root/scripts/tests/sdk_reads.py" "$sdk" "$@"; }
  reads Service "$root/cloudrun/service.yaml"
  sed -E 's/\$\{(TASKS|PARALLEL)\}/3/' "$root/cloudrun/batch-job.yaml" >"$BATS_TEST_TMPDIR/job.yaml"
  reads Job "$BATS_TEST_TMPDIR/job.yaml"
  reads Build "$root/cloudrun/cloudbuild.yaml"
  sed 's/^# token: //' "$root/cloudrun/stage.yaml" >"$BATS_TEST_TMPDIR/token.yaml"
  reads Build "$BATS_TEST_TMPDIR/token.yaml"
  sed 's/failureThreshold/failureTreshold/' "$root/cloudrun/service.yaml" >"$BATS_TEST_TMPDIR/wrong.yaml"
  run reads Service "$BATS_TEST_TMPDIR/wrong.yaml"
  [ "$status" -ne 0 ]
  known=$BATS_TEST_TMPDIR/known
  cat "$sdk"/lib/googlecloudsdk/generated_clients/apis/run/v1/run_v1_messages.py "$sdk"/lib/googlecloudsdk/api_lib/run/*.py >"$known"
  for name in $(grep -ohE '(run\.googleapis\.com|autoscaling\.knative\.dev)/[A-Za-z0-9-]+' "$root"/cloudrun/{service,batch-job}.yaml | grep -v '/v1$' | sort -u); do
    grep -qF -e "$name" -e "'/${name#*/}'" "$known" || { echo "unknown: $name" && false; }
  done
}

@test "batch-job.yaml, filled in, is a job" {
  images_are_built
  answer 'run services describe *' 0 'https://dgemma-1.run.app\n'
  echo '{}' >"$BATS_TEST_TMPDIR/rows.jsonl"
  ROWS=$BATS_TEST_TMPDIR/rows.jsonl TASKS=200 PARALLEL=50 JOBS=4 RUN=first "$root/cloudrun/batch.sh"
  agrees job "$KEPT/job.yaml"
}

@test "the files for Cloud Build use what they are given, with enough time and disk" {
  agrees build "$root/cloudrun/cloudbuild.yaml"
  agrees stage "$root/cloudrun/stage.yaml"
  sed 's/^# token: //' "$root/cloudrun/stage.yaml" >"$BATS_TEST_TMPDIR/token.yaml"
  agrees stage-token "$BATS_TEST_TMPDIR/token.yaml"
}
