#!/bin/bash
# Runs as root at every boot of a machine that gce/deploy.sh made (Container-Optimized OS): driver, image, weights, server.
# What an earlier boot has done is not done again. Says its phases as `dgem-startup: PHASE` on the serial port, at the end
# `ready` or `failed`. Settings come from the machine's metadata; no secret is among them.
set -euo pipefail

state=${DGEM_STATE:-/var/lib/dgem}
driver=${DGEM_DRIVER:-/var/lib/nvidia}
cli=gcr.io/google.com/cloudsdktool/google-cloud-cli:528.0.0-slim
# docker-credential-gcr writes its settings below HOME, which startup scripts do not have.
export HOME=$state/home
mkdir -p "$HOME"

# On the serial port itself: what a startup script prints may stay in the journal.
serial=${DGEM_SERIAL:-/dev/ttyS0}
tell() {
  echo "dgem-startup: $1"
  echo "dgem-startup: $1" >>"$serial" || true
}
phase=start
enter() {
  phase=$1
  tell "$phase"
}
trap '[ $? -eq 0 ] || tell "failed in: $phase"' EXIT

metadata() {
  curl --fail --silent --show-error --retry 10 --retry-connrefused -H 'Metadata-Flavor: Google' \
    "http://${GCE_METADATA_HOST:-metadata.google.internal}/computeMetadata/v1/instance/attributes/$1"
}
image=$(metadata dgem-image)
weights=$(metadata dgem-weights)
gpus=$(metadata dgem-gpus)
quant=$(metadata dgem-quant)
ctx=$(metadata dgem-ctx)
listen=$(metadata dgem-listen)
device_map=$(metadata dgem-device-map)
key_secret=$(metadata dgem-key-secret)
# A server that others reach asks for a key, or does not start.
[ "$listen" = 127.0.0.1 ] || [ "$key_secret" != none ]
registry=${image%%/*}
model=${weights##*/}

enter driver
# Its place is not executable after a boot; the driver itself is kept.
if ! mountpoint -q "$driver"; then
  mkdir -p "$driver"
  mount --bind "$driver" "$driver"
fi
mount -o remount,exec "$driver"
if ! "$driver/bin/nvidia-smi" >/dev/null 2>&1; then cos-extensions install gpu; fi
"$driver/bin/nvidia-smi"

enter image
docker-credential-gcr configure-docker "--registries=$registry"
docker image inspect "$image" >/dev/null 2>&1 || docker pull "$image"

enter weights
folder=$state/weights/$model
# The manifest comes last, so a copy that was cut off is seen.
if [ ! -f "$folder/MANIFEST.json" ]; then
  mkdir -p "$folder"
  docker run --rm --network host --volume "$folder:/weights" "$cli" \
    gcloud storage rsync "$weights" /weights --recursive --exclude='^MANIFEST\.json$'
  docker run --rm --network host --volume "$folder:/weights" "$cli" \
    gcloud storage cp "$weights/MANIFEST.json" /weights/.MANIFEST.json
  mv "$folder/.MANIFEST.json" "$folder/MANIFEST.json"
fi

enter server
options=(--publish "$listen:8080:8080")
if [ "$key_secret" != none ]; then
  # The server's user, and nobody else, reads the key.
  (umask 077 && docker run --rm --network host "$cli" gcloud secrets versions access latest "--secret=$key_secret" >"$state/key.new")
  [ -s "$state/key.new" ]
  chown 10001 "$state/key.new"
  mv "$state/key.new" "$state/key"
  options+=(--volume "$state/key:/run/key:ro" --env DGEMMA_API_KEY_FILE=/run/key)
fi
for ((gpu = 0; gpu < gpus; gpu++)); do options+=(--device "/dev/nvidia$gpu"); done
[ "$device_map" = none ] || options+=(--env "DGEMMA_DEVICE_MAP=$device_map")
docker rm --force dgemma >/dev/null 2>&1 || true
docker run --detach --name dgemma --restart always --log-driver=json-file --log-opt max-size=50m \
  --device /dev/nvidiactl --device /dev/nvidia-uvm "${options[@]}" \
  --volume "$driver/lib64:/usr/local/nvidia/lib64:ro" --volume "$driver/bin:/usr/local/nvidia/bin:ro" \
  --volume "$folder:/weights/$model:ro" --env "DGEMMA_MODEL=/weights/$model" --env "DGEMMA_QUANT=$quant" --env "DGEMMA_CTX=$ctx" \
  --env DGEMMA_DTYPE=bf16 "$image"

enter 'loading the model'
deadline=$((SECONDS + ${DGEM_LOAD_SECONDS:-1200}))
until curl --fail --silent --max-time 5 --output /dev/null http://127.0.0.1:8080/readyz; do
  if [ "$SECONDS" -ge "$deadline" ] || [ "$(docker inspect --format '{{.RestartCount}}' dgemma)" -ge 3 ]; then
    docker logs --tail 20 dgemma 2>&1 | tee -a "$serial" || true
    exit 1
  fi
  sleep "${DGEM_POLL_SECONDS:-3}"
done
enter ready
