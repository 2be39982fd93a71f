#!/usr/bin/env bats
# The scripts of gce/: gcloud is a stub, and so are the programs that the startup script calls.
load common

bf16=diffusiongemma-26B-A4B-it

cloud() {
  images_are_built
  weights_are_staged "$@"
  answer 'compute machine-types describe *' 0 'there\n'
  answer '*get-serial-port-output*' 0 'x dgem-startup: driver\r\nx dgem-startup: ready\r\n'
}

# machine_is_there [STATUS]: the machine that was made is there, with its metadata.
machine_is_there() {
  local items
  items=$(sed -nE 's/.* --metadata=\^~\^([^ ]*) .*/\1/p' "$CALLS" | tail -n 1 | tr '~' '\n' |
    jq -Rc '{key: sub("=.*"; ""), value: sub("^[^=]*="; "")}' | jq -sc --arg status "${1:-RUNNING}" '{status: $status, metadata: {items: (. + [{key: "startup-script", value: "x"}])}}')
  [[ $items == *dgem-image* ]]
  answer 'compute instances describe *--format=json*' 0 "$items"
}

@test "deploy: a machine of the right size for each precision" {
  export GCP_ZONE=europe-west4-a
  cloud
  "$root/gce/deploy.sh"
  golden gce-4
  : >"$ANSWERS"
  cloud "$bf16"
  for precision in 8 16; do
    : >"$CALLS"
    SPOT=$((precision / 16)) PRECISION=$precision "$root/gce/deploy.sh"
    golden gce-$precision
  done
  grep -q -- '--machine-type=g2-standard-8 ' "$BATS_TEST_DIRNAME/golden/gce-4.txt"
  grep -q -- '--machine-type=a2-highgpu-1g ' "$BATS_TEST_DIRNAME/golden/gce-8.txt"
  grep -q -- '--machine-type=a2-highgpu-2g ' "$BATS_TEST_DIRNAME/golden/gce-16.txt"
}

@test "deploy: a dry run prints what would run" {
  export GCP_ZONE=europe-west4-a
  DRY_RUN=1 "$root/gce/deploy.sh" >"$BATS_TEST_TMPDIR/printed"
  [ ! -s "$CALLS" ]
  diff -u <(sed "s/$digest/sha256:DIGEST/g; s/$commit/COMMIT/g" "$BATS_TEST_DIRNAME/golden/gce-4.txt" | grep -v get-serial) <(plain "$BATS_TEST_TMPDIR/printed")
}

@test "deploy: every machine deletes itself, has no address and opens nothing but Google's tunnel" {
  for precision in 4 8 16; do
    file=$BATS_TEST_DIRNAME/golden/gce-$precision.txt
    grep -q -- '--max-run-duration=3h --instance-termination-action=DELETE ' "$file"
    grep -q -- ' --no-address ' "$file"
    grep -q 'dgem-listen=127.0.0.1' "$file"
    [ "$(grep -c 'firewall-rules create' "$file")" -eq 1 ]
    grep -q -- '--source-ranges=35.235.240.0/20 --allow=tcp:22 ' "$file"
  done
}

@test "deploy: an address of its own takes a small range and a key, which stays in Secret Manager" {
  export GCP_ZONE=europe-west4-a SOURCE_RANGE=203.0.113.7/32
  cloud
  answer '*natIP*' 0 '198.51.100.4\n'
  refused 2 'API_KEY_SECRET is not set' "$root/gce/deploy.sh"
  for wide in 0.0.0.0/0 10.0.0.0/8 203.0.113.7 all; do
    SOURCE_RANGE=$wide API_KEY_SECRET=dgem-key refused 2 'no small range' "$root/gce/deploy.sh"
  done
  for wrong in 300.1.2.3/32 1.2.3/24 ...../99 1.2.3.4/33 '1.2.3.4/32,0.0.0.0/0'; do
    SOURCE_RANGE=$wrong API_KEY_SECRET=dgem-key refused 2 'no small range' "$root/gce/deploy.sh"
  done
  API_KEY_SECRET=dgem-key refused 2 'there is no secret dgem-key' "$root/gce/deploy.sh"
  answer 'secrets describe *' 0 'dgem-key\n'
  : >"$CALLS"
  API_KEY_SECRET=dgem-key DGEMMA_API_KEYS=key_canary run "$root/gce/deploy.sh"
  [ "$status" -eq 0 ]
  golden gce-address
  lacks "$CALLS" key_canary
  lacks "$CALLS" ' --no-address'
  [[ $output == *'http://198.51.100.4:8080/v1'* ]]
}

@test "deploy: what is missing is named before anything is made" {
  refused 2 'there is no g2-standard-8 in us-central1-a' "$root/gce/deploy.sh"
  [[ $output == *'machine-types list'* ]]
  GCP_PROJECT='' refused 2 'GCP_PROJECT is not set' "$root/gce/deploy.sh"
  PRECISION=32 refused 2 'PRECISION=32 is not known' "$root/gce/deploy.sh"
  GCP_ZONE=us-central1 refused 2 'is no zone' "$root/gce/deploy.sh"
  NETWORK=none refused 2 'NETWORK=none is for Cloud Run only' "$root/gce/deploy.sh"
  SPOT=maybe refused 2 'neither on nor off' "$root/gce/deploy.sh"
  MAX_RUN=forever refused 2 'is no time' "$root/gce/deploy.sh"
  answer 'compute machine-types describe *' 0 'there\n'
  refused 2 'no complete copy' "$root/gce/deploy.sh"
  bucket_is_ours my-project-dgem-weights-us-central1
  answer 'storage ls *' 0 "gs://my-project-dgem-weights-us-central1/$commit/$nvfp4/MANIFEST.json\n"
  refused 2 'there is no image' "$root/gce/deploy.sh"
  images_are_built
  answer 'compute instances describe *' 0 '{"status": "TERMINATED"}'
  refused 2 'dgem-4 is there and TERMINATED' "$root/gce/deploy.sh"
}

@test "deploy: a machine that runs is waited for, not made again" {
  export GCP_ZONE=europe-west4-a
  cloud
  "$root/gce/deploy.sh"
  machine_is_there
  : >"$CALLS"
  run "$root/gce/deploy.sh"
  [ "$status" -eq 0 ]
  [[ $output == *'dgem-4 is there already'* && $output == *ready* ]]
  lacks "$CALLS" ' create '
}

@test "deploy: a machine that runs with other settings is not taken for the one that is asked for" {
  export GCP_ZONE=europe-west4-a VM=dgem-4
  cloud
  "$root/gce/deploy.sh"
  machine_is_there
  : >"$CALLS"
  for change in CTX=1024 QUANT=q8_0 SPOT=1 MAX_RUN=1h NETWORK=other REPO="google/$nvfp4 PRECISION=8"; do
    read -ra words <<<"$change"
    run env "${words[@]}" "$root/gce/deploy.sh"
    [ "$status" -eq 2 ] || { echo "$change: $output" && false; }
    [[ $output == *'runs with other settings'*'make gce-teardown'* ]]
  done
  answer 'secrets describe *' 0 'dgem-key\n'
  SOURCE_RANGE=203.0.113.7/32 API_KEY_SECRET=dgem-key refused 2 'runs with other settings' "$root/gce/deploy.sh"
}

@test "deploy: a machine that should have an address and has none is a failure" {
  export GCP_ZONE=europe-west4-a
  cloud
  answer 'secrets describe *' 0 'dgem-key\n'
  SOURCE_RANGE=203.0.113.7/32 API_KEY_SECRET=dgem-key run "$root/gce/deploy.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'dgem-4 has no address'* && $output != *http://:* ]]
}

@test "deploy: a machine that starts is waited for, one that was taken away is an error at once" {
  export GCP_ZONE=europe-west4-a
  cloud
  "$root/gce/deploy.sh"
  machine_is_there STAGING
  "$root/gce/deploy.sh"
  : >"$ANSWERS"
  answer '*get-serial-port-output*' 1
  cloud
  fake gcloud <<'F'
#!/bin/bash
case "$*" in *get-serial-port-output*) echo "ERROR: The resource 'instances/dgem-4' was not found" >&2 && exit 1 ;; esac
exec "$STUB" "$@"
F
  STUB=$root/scripts/tests/stub/gcloud run "$root/gce/deploy.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'dgem-4 is no longer there'*hint:* ]]
}

@test "deploy: every network and range has a rule of its own, which no other machine changes" {
  export GCP_ZONE=europe-west4-a API_KEY_SECRET=dgem-key
  cloud
  answer 'secrets describe *' 0 'dgem-key\n'
  answer '*natIP*' 0 '198.51.100.4\n'
  for change in A=1 NETWORK=other SOURCE_RANGE=203.0.113.7/32 SOURCE_RANGE=203.0.113.8/32; do env "$change" "$root/gce/deploy.sh"; done
  [ "$(grep -oE 'firewall-rules create [^ ]+' "$CALLS" | sort -u | wc -l)" -eq 4 ]
  lacks "$CALLS" 'firewall-rules update'
}

@test "deploy: two GPUs share the layers, all of them" {
  lacks "$BATS_TEST_DIRNAME/golden/gce-4.txt" device-map=cuda
  grep -qF '~dgem-device-map=cuda:0=0-14,cuda:1=15-29~dgem-gpus=2~' "$BATS_TEST_DIRNAME/golden/gce-16.txt"
}

@test "deploy: a failure on the machine and a machine that is never ready end the wait" {
  export GCP_ZONE=europe-west4-a
  answer '*get-serial-port-output*' 0 'the reason\nx dgem-startup: failed in: driver\n'
  cloud
  run "$root/gce/deploy.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'the reason'* && $output == *'make gce-teardown'* ]]
  : >"$ANSWERS"
  answer '*get-serial-port-output*' 0 'x dgem-startup: weights\n'
  cloud
  WAIT_SECONDS=0 run "$root/gce/deploy.sh"
  [ "$status" -eq 1 ]
  [[ $output == *'the last phase was: weights'* ]]
}

@test "deploy: the signal to stop ends the wait at once and leaves nothing behind" {
  export GCP_ZONE=europe-west4-a TMPDIR=$BATS_TEST_TMPDIR/tmp POLL_SECONDS=1
  mkdir "$TMPDIR"
  answer '*get-serial-port-output*' 0 'x dgem-startup: weights\n'
  cloud
  background "$root/gce/deploy.sh"
  deploy=$!
  for _ in $(seq 200); do grep -q get-serial "$CALLS" && break || sleep 0.1; done
  kill -TERM "$deploy"
  code=0
  wait "$deploy" || code=$?
  [ "$code" -eq 143 ]
  [ -z "$(ls -A "$TMPDIR")" ]
}

# The machine: metadata, driver, docker and disks that note what they are asked.
machine() {
  export DGEM_STATE="$BATS_TEST_TMPDIR/state" DGEM_DRIVER="$BATS_TEST_TMPDIR/nvidia" DGEM_SERIAL=$BATS_TEST_TMPDIR/serial
  export DGEM_POLL_SECONDS=0 KEY=${KEY:-}
  # With FAILED, a file, each command line fails the first time it is seen.
  once=$BATS_TEST_TMPDIR/once
  cat >"$once" <<'F'
line="${0##*/} $*"
if [ -n "${FAILED:-}" ] && ! grep -qxF -- "$line" "$FAILED"; then echo "$line" >>"$FAILED" && exit 9; fi
F
  fake curl <<F
#!/bin/bash
. "$once"
F
  cat >>"$BATS_TEST_TMPDIR/bin/curl" <<'F'
case ${!#} in
  */dgem-image) echo europe-west4-docker.pkg.dev/p/dgem/dgemma@sha256:7 ;;
  */dgem-weights) echo gs://b/5/m ;;
  */dgem-gpus) echo 2 ;;
  */dgem-quant) echo none ;;
  */dgem-ctx) echo 32768 ;;
  */dgem-listen) echo "${LISTEN:-127.0.0.1}" ;;
  */dgem-device-map) echo cuda:0=0-14,cuda:1=15-29 ;;
  */dgem-key-secret) echo "${KEY:-none}" ;;
  */readyz) [ -z "$NEVER" ] ;;
  *) exit 22 ;;
esac
F
  fake docker <<F
#!/bin/bash
. "$once"
F
  cat >>"$BATS_TEST_TMPDIR/bin/docker" <<'F'
echo "docker $*" >>"$CALLS"
case "$*" in
  'image inspect'*) grep -q 'docker pull' "$CALLS" ;;
  *'storage cp'*) touch "$DGEM_STATE/weights/m/.MANIFEST.json" ;;
  *'secrets versions'*) echo key_canary ;;
  inspect*) echo 3 ;;
  logs*) echo 'the last words of the server' ;;
esac
F
  fake cos-extensions <<F
#!/bin/bash
. "$once"
F
  cat >>"$BATS_TEST_TMPDIR/bin/cos-extensions" <<'F'
echo "cos-extensions $*" >>"$CALLS"
mkdir -p "$DGEM_DRIVER/bin"
printf '#!/bin/bash\n' >"$DGEM_DRIVER/bin/nvidia-smi"
chmod +x "$DGEM_DRIVER/bin/nvidia-smi"
F
  for name in mount mountpoint docker-credential-gcr chown; do
    fake "$name" <<<"#!/bin/bash
. '$once'
echo \"\${0##*/} \$*\" >>\"\$CALLS\""
  done
}

@test "startup: driver, image, weights and server, in phases" {
  machine
  run bash "$root/gce/startup.sh"
  [ "$status" -eq 0 ]
  [ "$(tr '\n' ';' <"$DGEM_SERIAL")" = 'dgem-startup: driver;dgem-startup: image;dgem-startup: weights;dgem-startup: server;dgem-startup: loading the model;dgem-startup: ready;' ]
  grep -q 'docker run --detach .*--publish 127.0.0.1:8080:8080 --device /dev/nvidia0 --device /dev/nvidia1 ' "$CALLS"
  grep -q 'DGEMMA_MODEL=/weights/m ' "$CALLS"
  grep -q -- '--env DGEMMA_DEVICE_MAP=cuda:0=0-14,cuda:1=15-29 ' "$CALLS"
}

@test "startup: a second boot fetches nothing again, and starts the server anew" {
  machine
  bash "$root/gce/startup.sh"
  : >"$BATS_TEST_TMPDIR/first"
  cp "$CALLS" "$BATS_TEST_TMPDIR/first"
  bash "$root/gce/startup.sh"
  tail -n "+$(($(wc -l <"$BATS_TEST_TMPDIR/first") + 1))" "$CALLS" >"$BATS_TEST_TMPDIR/second"
  lacks "$BATS_TEST_TMPDIR/second" 'docker pull|cos-extensions|storage'
  grep -q 'docker rm --force dgemma' "$BATS_TEST_TMPDIR/second"
  grep -q 'docker run --detach' "$BATS_TEST_TMPDIR/second"
}

@test "startup: weights that were cut off are fetched again" {
  machine
  mkdir -p "$DGEM_STATE/weights/m"
  touch "$DGEM_STATE/weights/m/a.safetensors"
  bash "$root/gce/startup.sh"
  grep -q 'storage rsync gs://b/5/m /weights' "$CALLS"
}

@test "startup: the key goes from Secret Manager into a file for the server alone" {
  KEY=dgem-key machine
  bash "$root/gce/startup.sh"
  [ "$(cat "$DGEM_STATE/key")" = key_canary ]
  [ "$(stat -c %a "$DGEM_STATE/key")" = 600 ]
  grep -q 'DGEMMA_API_KEY_FILE=/run/key' "$CALLS"
  lacks "$CALLS" key_canary
  lacks "$DGEM_SERIAL" key_canary
}

@test "startup: every command may fail: its phase is told, and at the next boot all is repaired" {
  KEY=dgem-key machine
  export FAILED=$BATS_TEST_TMPDIR/failed
  : >"$FAILED"
  # What an earlier boot left is not there again after each failure, but the driver, the image and the weights are.
  for boot in $(seq 60); do
    run bash "$root/gce/startup.sh"
    [ "$status" -ne 0 ] || break
    [[ $(tail -n 1 "$DGEM_SERIAL") == 'dgem-startup: failed in: '* ]]
    lacks "$DGEM_SERIAL" 'dgem-startup: ready'
  done
  [ "$(tail -n 1 "$DGEM_SERIAL")" = 'dgem-startup: ready' ]
  [ "$boot" -ge 15 ]
  # Never without the key.
  lacks <(grep 'run --detach' "$CALLS" | grep -v DGEMMA_API_KEY_FILE) .
}

@test "startup: a server that others reach does not start without a key" {
  machine
  LISTEN=0.0.0.0 run bash "$root/gce/startup.sh"
  [ "$status" -ne 0 ]
  [[ $(tail -n 1 "$DGEM_SERIAL") == 'dgem-startup: failed in: '* ]]
  # Nor when it cannot be told whether there is one.
  sed -i 's|.*/dgem-key-secret) .*|  */dgem-key-secret) exit 22 ;;|' "$BATS_TEST_TMPDIR/bin/curl"
  run bash "$root/gce/startup.sh"
  [ "$status" -ne 0 ]
  lacks "$CALLS" 'run --detach'
}

@test "startup: a failure is told on the serial port, with its phase" {
  machine
  NEVER=1 run bash "$root/gce/startup.sh"
  [ "$status" -eq 1 ]
  [ "$(tail -n 1 "$DGEM_SERIAL")" = 'dgem-startup: failed in: loading the model' ]
  grep -q 'the last words of the server' "$DGEM_SERIAL"
  fake cos-extensions <<<'#!/bin/bash
exit 7'
  rm -rf "$DGEM_DRIVER"
  run bash "$root/gce/startup.sh"
  [ "$status" -ne 0 ]
  [ "$(tail -n 1 "$DGEM_SERIAL")" = 'dgem-startup: failed in: driver' ]
}
