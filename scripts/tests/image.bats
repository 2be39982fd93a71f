#!/usr/bin/env bats
# The Dockerfiles and what is sent to build them. Nothing is built here: no registry with the base images is reached.
load common

files=("$root/cloudrun/Dockerfile" "$root/cloudrun/cpu.Dockerfile")

# What a file copies from the tree, a path a line.
sources() { sed -nE 's/^COPY (--chmod=[0-9]+ )?([^-].*) [^ ]+$/\2/p' "$1" | tr ' ' '\n'; }

# Paths under the root that .dockerignore lets through, by its own simple form: all but what is named.
allowed() { sed -n 's/^!//p' "$root/.dockerignore"; }

@test "everything an image copies exists, and is sent" {
  for file in "${files[@]}"; do
    [ "$(sources "$file" | wc -l)" -gt 5 ]
    for path in $(sources "$file"); do
      [ -e "$root/$path" ]
      grep -qxF "$path" <(allowed)
    done
  done
  for path in $(allowed); do [ -e "$root/$path" ]; done
}

@test "every member of the workspace and every file the sources include is copied" {
  members=$(sed -nE 's/^members = \[(.*)\]/\1/p' "$root/Cargo.toml" | tr -d '",')
  [ "$(wc -w <<<"$members")" -ge 4 ]
  for file in "${files[@]}"; do
    for member in $members; do
      # In the stage that plans, and in the one that builds.
      [ "$(sources "$file" | grep -cxF "$member")" -eq 2 ]
    done
  done
  # Cargo agrees about what lies there then.
  context=$BATS_TEST_TMPDIR/context
  mkdir "$context"
  for path in $(sources "$root/cloudrun/cpu.Dockerfile" | sort -u); do
    (cd "$root" && git ls-files -zco --exclude-standard "$path" | grep -zv /tests/ | xargs -0 cp --parents -t "$context")
  done
  (cd "$context" && cargo metadata --format-version 1 --no-deps --offline --locked >/dev/null)
  cd "$context"
  count=0
  while IFS=: read -r source text; do
    path=$(sed -nE 's/.*include_(str|bytes)!\((concat!\()?"([^"]*)".*/\3/p' <<<"$text")
    # What only tests include is not sent.
    case /$path in / | */tests/*) continue ;; esac
    [ -e "$(dirname "$source")/$path" ] || { echo "$source includes $path, which no image copies" && false; }
    count=$((count + 1))
  done < <(grep -rE 'include_(str|bytes)!' --include='*.rs' decision/src diffusion-gemma/src dgemma-server/src dgem/src)
  [ "$count" -ge 1 ]
}

@test "base images are named by version or digest, programs run as nobody, signals are the server's" {
  for file in "${files[@]}"; do
    # A stage of this file, or a variable whose default says a version, and a digest once it is pinned.
    for base in $(sed -nE 's/^FROM ([^ ]+).*/\1/p' "$file"); do
      [ "$base" != chef ] || continue
      grep -qE "^ARG ${base#$}=[a-z/]+:[0-9][a-z0-9.-]*(@sha256:[0-9a-f]{64})?\$" "$file"
    done
    [ "$(grep -E '^(USER|STOPSIGNAL|ENTRYPOINT)' "$file" | tr '\n' ' ')" = 'USER 10001 STOPSIGNAL SIGTERM ENTRYPOINT ["dgemma-entrypoint"] ' ]
    # In both stages that run cargo: what was resolved here, and nothing newer.
    [ "$(grep -c -- '--locked' "$file")" -eq 3 ]
  done
  cuda=$(sed -nE 's/^ARG CUDA_[A-Z]+_IMAGE=nvidia.cuda:([0-9]+\.[0-9]+).*/\1/p' "$root/cloudrun/Dockerfile" | sort -u)
  [ "$(wc -l <<<"$cuda")" -eq 1 ]
  grep -qF "DGEMMA_BUILD_CUDA=$cuda" "$root/cloudrun/Dockerfile"
  grep -qF "cuda-compat-${cuda/./-}" "$root/cloudrun/Dockerfile"
}

@test "what is sent to Cloud Build is what .dockerignore allows, and how to build it" {
  real=$(PATH=${PATH//"$root/scripts/tests/stub:"/} command -v gcloud) || skip "not checked: the Google Cloud CLI is not installed"
  copy="$BATS_TEST_TMPDIR/copy"
  mkdir "$copy"
  (cd "$root" && git ls-files -zco --exclude-standard -- . ':!fixtures' | xargs -0 cp --parents -t "$copy")
  cp "$root/.gcloudignore" "$root/.dockerignore" "$copy"
  cp -r "$root/cloudrun" "$copy"
  mkdir -p "$copy/model" "$copy/dgem/target" "$copy/target"
  touch "$copy/model/a.safetensors" "$copy/dgem/target/x" "$copy/target/y" "$copy/.env" "$copy/key.json"
  CLOUDSDK_CONFIG=$BATS_TEST_TMPDIR/config "$real" meta list-files-for-upload "$copy" >"$BATS_TEST_TMPDIR/sent"
  for path in $(allowed) cloudrun/Dockerfile cloudrun/cpu.Dockerfile .dockerignore; do
    grep -qE "^$path(/|\$)" "$BATS_TEST_TMPDIR/sent"
  done
  lacks "$BATS_TEST_TMPDIR/sent" '^(model|target|fixtures|docs|gce|scripts)/|/target/|/tests/|\.env|key.json'
}

@test "the GPU image is built with a feature that the server has" {
  grep -q -- '--features dgemma-server/cuda' "$root/cloudrun/Dockerfile"
  grep -qE '^cuda *=' "$root/dgemma-server/Cargo.toml"
}

# docker, which knows the digest of what was pulled, and notes its command lines.
fake_docker() {
  fake docker <<F
#!/bin/bash
echo "docker \$*" >>"\$CALLS"
case "\$1 \$2" in 'image inspect') echo "\${@: -1}@\$DIGEST" ;; esac
F
  export DIGEST=$digest
}

@test "a build pulls its base images, builds from their digests, and records them" {
  fake_docker
  cd "$root"
  for file in cloudrun/Dockerfile cloudrun/cpu.Dockerfile; do
    : >"$CALLS"
    run bash cloudrun/image.sh "$file" r/p/dgem/dgemma:1-cpu 80 1
    [ "$status" -eq 0 ]
    built=$(tail -n 1 "$CALLS")
    [[ $built == "docker build --file=$file --tag=r/p/dgem/dgemma:1-cpu --build-arg=CAPABILITY=80 --build-arg=GIT_REVISION=1 "*' .' ]]
    while IFS='=' read -r name base; do
      grep -qx "docker pull --quiet $base" "$CALLS"
      [[ $built == *" --build-arg=$name=$base@$digest --label=dgem.base.$name=$base@$digest "* ]]
      [[ $output == *"base image: $name $base@$digest"* ]]
      # It is what a stage begins with.
      grep -qE "^FROM [$]$name( |\$)" "$file"
    done < <(sed -nE 's/^ARG ([A-Z_]+_IMAGE)=(.+)/\1=\2/p' "$file")
  done
  # A base whose digest is not known is not built from.
  : >"$CALLS"
  DIGEST='' run bash cloudrun/image.sh cloudrun/Dockerfile i 80 1
  [ "$status" -eq 1 ]
  [[ $output == *'the digest of rust:'*'is not known'* ]]
  lacks "$CALLS" 'docker build'
}

@test "pinning writes the digest of every base image beside its tag, or nothing" {
  copy="$BATS_TEST_TMPDIR/a tree"
  mkdir "$copy"
  cp -r "$root/cloudrun" "$root/scripts" "$copy"
  fake curl <<'F'
#!/bin/bash
echo "$*" >>"$ASKED"
case "$*" in
  *auth.docker.io*) echo '{"token": "anybody"}' ;;
  *"$BROKEN"*) echo 'curl: (22) The requested URL returned error: 429' >&2 && exit 22 ;;
  */manifests/*) printf 'HTTP/2 200\r\nDocker-Content-Digest: %s\r\n\r\n' "$DIGEST" ;;
esac
F
  export ASKED=$BATS_TEST_TMPDIR/asked DIGEST=$digest BROKEN=none
  : >"$ASKED"
  pin="$copy/cloudrun/pin.sh"
  DRY_RUN=1 run "$pin"
  [ "$status" -eq 0 ]
  [[ $output == *registry-1.docker.io/v2/library/rust/manifests/1* && $output == *registry-1.docker.io/v2/nvidia/cuda/manifests/12* ]]
  [ ! -s "$ASKED" ]
  BROKEN=debian run "$pin"
  [ "$status" -eq 1 ]
  [[ $output == *'Docker Hub tells nothing of debian:'*hint:* ]]
  DIGEST=sha256:1 run "$pin"
  [ "$status" -eq 1 ]
  for file in Dockerfile cpu.Dockerfile; do diff "$root/cloudrun/$file" "$copy/cloudrun/$file"; done
  # Twice: what is pinned is pinned anew.
  for DIGEST in "sha256:$(printf '%064d' 3)" "$digest"; do "$pin"; done
  for file in Dockerfile cpu.Dockerfile; do
    [ "$(diff "$root/cloudrun/$file" "$copy/cloudrun/$file" | grep '^>')" = "$(sed -nE "s/^(ARG [A-Z_]+_IMAGE=.+)/> \\1@$digest/p" "$root/cloudrun/$file")" ]
    hadolint -c "$root/.hadolint.yaml" "$copy/cloudrun/$file"
  done
  lacks "$ASKED" 'Bearer|anybody'
}
