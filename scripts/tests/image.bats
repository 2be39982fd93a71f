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

@test "base images are named by version, programs run as nobody, signals are the server's" {
  for file in "${files[@]}"; do
    while read -r _ base _; do
      case $base in chef | rust) continue ;; esac
      [[ $base == *:* && $base != *latest* ]]
    done < <(grep ^FROM "$file")
    [ "$(grep -E '^(USER|STOPSIGNAL|ENTRYPOINT)' "$file" | tr '\n' ' ')" = 'USER 10001 STOPSIGNAL SIGTERM ENTRYPOINT ["dgemma-entrypoint"] ' ]
    # In both stages that run cargo: what was resolved here, and nothing newer.
    [ "$(grep -c -- '--locked' "$file")" -eq 3 ]
  done
  cuda=$(sed -nE 's/^FROM nvidia.cuda:([0-9]+\.[0-9]+).*/\1/p' "$root/cloudrun/Dockerfile" | sort -u)
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
