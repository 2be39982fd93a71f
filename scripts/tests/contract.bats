#!/usr/bin/env bats
# What the scripts take for granted about the two programs is so.
load common

@test "every variable that is set for a program is one that it reads" {
  used=$(grep -ohE '\b(DGEMMA|DGEM)_[A-Z_]+' "$root"/cloudrun/{deploy,stage,batch}.sh "$root"/cloudrun/{service,batch-job}.yaml "$root"/cloudrun/*ockerfile \
    "$root"/gce/{deploy,startup}.sh "$root/scripts/local.sh" "$root/cloudrun/entrypoint.sh" | sort -u)
  # Those of the scripts themselves, and of the build.
  own='DGEM_(REVISION|STATE|DRIVER|SERIAL|LOAD_SECONDS|POLL_SECONDS|GIT_REVISION)|DGEMMA_BUILD_(CAPABILITY|CUDA)'
  count=0
  for name in $(grep -vxE "$own" <<<"$used"); do
    grep -rqF "\"$name\"" "$root/dgem/src" "$root/dgemma-server/src" || { echo "nobody reads $name" && false; }
    count=$((count + 1))
  done
  [ "$count" -ge 10 ]
}

@test "the probes ask routes that need no key" {
  for route in /readyz /livez; do
    grep -q "httpGet.path=$route," "$BATS_TEST_DIRNAME/golden/deploy-l4.txt"
    grep -qE "\`GET $route\` \\| no \\|" "$root/docs/server.md"
  done
}

@test "the server's time to drain is shorter than the one Cloud Run gives" {
  seconds=$(grep -hB 1 'DGEMMA_DRAIN_SECONDS' "$root"/dgemma-server/src/cli/*.rs | sed -nE 's/.*default_value_t = ([0-9]+).*/\1/p')
  [ "$seconds" -lt 10 ]
}

@test "dgemma-server download has the flags it is called with" {
  [ -x "$root/bin/dgemma-server" ] || skip "not checked: bin/dgemma-server is not built"
  "$root/bin/dgemma-server" download --help >"$BATS_TEST_TMPDIR/help" || skip "not checked: this dgemma-server has no download"
  for flag in --repo --revision --jobs -o; do grep -qE -- "(^| )$flag(,| )" "$BATS_TEST_TMPDIR/help"; done
  for file in "$root/cloudrun/stage.yaml" "$root/scripts/local.sh"; do
    for flag in $(grep -E 'download' "$file" | grep -oE -- ' ?-{1,2}[a-z]+[ =,]' | tr -d " ,='"); do
      grep -qE -- "(^| )$flag(,| )" "$BATS_TEST_TMPDIR/help"
    done
  done
}

@test "the user of the images is the one who owns what is mounted, and the tools on the way are one version" {
  user=$(sed -n 's/^USER //p' "$root/cloudrun/Dockerfile")
  for file in cloudrun/Dockerfile cloudrun/cpu.Dockerfile; do
    grep -q "useradd --uid $user " "$root/$file"
    grep -qx "USER $user" "$root/$file"
  done
  grep -q "uid=$user;gid=$user" "$root/cloudrun/deploy.sh"
  for file in cloudrun/service.yaml cloudrun/batch-job.yaml; do grep -q "uid=$user,gid=$user" "$root/$file"; done
  grep -q "chown $user " "$root/gce/startup.sh"
  [ "$(grep -ohE 'google-cloud-cli:[^ ]+' "$root/cloudrun/stage.yaml" "$root/gce/startup.sh" | sort -u | wc -l)" -eq 1 ]
}

@test "the forms of weights and numbers that the scripts take are the server's" {
  for word in $(sed -nE "s/.*formed (QUANT|DTYPE) \"[^\"]*\" '([^']*)'.*/\2/p" "$root/scripts/settings.sh" | tr '|' ' '); do
    grep -qiE "name = \"$word\"|^    $word,\$" "$root"/dgemma-server/src/cli/*.rs || { echo "the server has no $word" && false; }
    count=$((${count:-0} + 1))
  done
  [ "$count" -eq 6 ]
}
