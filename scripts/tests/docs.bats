#!/usr/bin/env bats
# docs/deploy.md: every command of it is run, in its order, with stubs of gcloud and dgem.
load common

@test "every command of docs/deploy.md runs, and gcloud's part is what the golden file says" {
  copy="$BATS_TEST_TMPDIR/a tree"
  mkdir -p "$copy/built"
  cp -r "$root/cloudrun" "$root/gce" "$root/scripts" "$root/templates" "$root/Makefile" "$root/.gitignore" "$root/.gcloudignore" "$copy"
  # The real dgem reads the command line, where it is built, and asks nobody.
  cat >"$copy/built/dgem" <<F
#!/bin/bash
echo "dgem \$*" >>"$BATS_TEST_TMPDIR/dgem"
case \$1 in doctor | bench) only=--help ;; *) only=--dry-run ;; esac
[ ! -x "$root/bin/dgem" ] || "$root/bin/dgem" "\$@" "\$only" >/dev/null
F
  chmod +x "$copy/built/dgem"
  # `make build` comes before the first use of bin/dgem.
  fake cargo <<<'#!/bin/bash
mkdir -p target/release && cp built/dgem target/release/'
  unset CARGO_TARGET_DIR DGEM_REVISION
  export HOME=$BATS_TEST_TMPDIR/home
  mkdir "$HOME"
  git -C "$copy" init --quiet
  git -C "$copy" add .
  git -C "$copy" -c user.name=a -c user.email=a@a commit --quiet -m a
  fake curl <<<"#!/bin/bash
echo '{\"sha\": \"$commit\"}'"
  echo '{}' >"$copy/rows.jsonl"
  echo hf_canary >"$HOME/hub-token.txt"
  small_cloud
  awk '/^```sh$/ {inside = 1; next} /^```/ {inside = 0} inside' "$root/docs/deploy.md" |
    sed 's/your-project-id/my-project/' >"$BATS_TEST_TMPDIR/commands"
  [ "$(grep -c . "$BATS_TEST_TMPDIR/commands")" -ge 25 ]
  cd "$copy"
  bash -euo pipefail "$BATS_TEST_TMPDIR/commands"
  # Back to nothing.
  [ -z "$(things)" ]
  sed -i "s/$(git rev-parse --short=12 HEAD)/$revision/g" "$CALLS"
  golden docs
  # A second machine of the same name is made after the first was taken down.
  [ "$(grep -oE 'instances (create|list)' "$CALLS" | uniq | head -n 3 | tr '\n' ';')" = 'instances create;instances list;instances create;' ]
  # Services are switched on before they are asked.
  for pair in 'enable.* secretmanager:secrets (create|describe)' 'enable.* cloudquotas:quotas info'; do
    first=$(grep -nE -m 1 "${pair%%:*}" "$CALLS" | cut -d : -f 1)
    [ "$first" -lt "$(grep -nE -m 1 "${pair#*:}" "$CALLS" | cut -d : -f 1)" ]
  done
  lacks "$CALLS" hf_canary
  # What the walk must pass: built, staged, deployed, asked, taken down.
  for step in 'builds submit .*cpu.Dockerfile' 'builds submit .*_COMMIT=' 'beta run deploy' 'run services delete' 'instances create' 'firewall-rules list'; do
    grep -qE -- "$step" "$CALLS"
  done
  [ "$(wc -l <"$BATS_TEST_TMPDIR/dgem")" -eq 4 ]
}

@test "docs/deploy.md names every setting of the scripts, and no other" {
  used=$(given "$root"/cloudrun/{build,stage,deploy,batch,teardown}.sh "$root"/gce/{deploy,size,teardown}.sh "$root"/scripts/{cloud,settings,teardown}.sh |
    grep -vE '^(DRY_RUN|ALL|BIND_WAIT_SECONDS|WAIT_SECONDS|POLL_SECONDS)$')
  named=$(grep -oE '^\| `[A-Z].*' "$root/docs/deploy.md" | cut -d '|' -f 2 | grep -oE '[A-Z][A-Z0-9_]+' | sort -u)
  [ "$(wc -w <<<"$used")" -ge 15 ]
  diff <(echo "$used") <(comm -12 <(echo "$used") <(echo "$named"))
  for name in $named; do grep -qrE "\\b$name\\b" "$root"/cloudrun/*.sh "$root"/gce/*.sh "$root"/scripts/{cloud,settings,teardown}.sh; done
}

@test "regions and machines of the guide are those of the scripts" {
  for gpu in l4 rtx; do
    list=$(GPU=$gpu GCP_REGION=no-where1 bash "$root/cloudrun/deploy.sh" 2>&1 | sed -n 's/^hint: .* in: //p' | tr ' ' '\n' | tr -d ',;:' | grep -- -)
    row=$(grep "| \`$gpu\`" "$root/docs/deploy.md")
    [ "$(wc -l <<<"$list")" -ge 4 ]
    for region in $list; do [[ $row == *$region* ]]; done
  done
  for precision in 4 8 16; do
    machine=$(sed -nE "s/^ +$precision\\) machine=([^ ]+) .*/\\1/p" "$root/gce/size.sh")
    grep -qE "^\\| $precision( .*)? \\| $machine " "$root/docs/deploy.md"
  done
}

@test "every target has a line in the list that make prints, and a dry run" {
  for target in cloudrun-build cloudrun-stage cloudrun-deploy cloudrun-teardown gce-deploy gce-teardown; do
    make -C "$root" --no-print-directory help | grep -qE "^ +$target "
    REVISION=$commit DRY_RUN=1 run make -C "$root" --no-print-directory "$target"
    [ "$status" -eq 0 ]
    [[ $output == *'gcloud '*--project=my-project* ]]
  done
  [ ! -s "$CALLS" ]
}

@test "the README of each folder names every file in it" {
  for folder in cloudrun gce scripts; do
    for file in $(cd "$root" && git ls-files -co --exclude-standard "$folder" | sed -nE "s|^$folder/([^/]+)(/.*)?|\1|p" | sort -u); do
      [ "$file" = README.md ] || grep -qF "\`$file\`" "$root/$folder/README.md" || { echo "$folder/README.md does not name $file" && false; }
    done
  done
}

@test "the defaults in the guide are those of the scripts" {
  count=0
  for pair in $(cat "$root"/cloudrun/*.sh "$root"/gce/deploy.sh | grep -oE '[$][{](QUEUE|CONCURRENT_DECISIONS|TASKS|PARALLEL|JOBS|MAX_RUN|GCP_ZONE|HF_ENDPOINT|TEMPLATE):-[^}]+' | sed 's/^..//; s/:-/=/'); do
    names=$(grep -oE "^\| [^|]*\`${pair%%=*}\`[^|]*" "$root/docs/deploy.md" | grep -oE '[A-Z_]{3,}')
    values=$(grep -E "^\| [^|]*\`${pair%%=*}\`" "$root/docs/deploy.md" | cut -d '|' -f 3 | tr -d '`,')
    at=$(grep -nx "${pair%%=*}" <<<"$names" | cut -d : -f 1)
    read -ra words <<<"$values"
    [ "${words[at - 1]}" = "${pair#*=}" ] || { echo "$pair: the guide says $values" && false; }
    count=$((count + 1))
  done
  [ "$count" -eq 9 ]
  # How many instances that makes.
  grep -qF ' --concurrency=64 ' "$BATS_TEST_DIRNAME/golden/deploy-l4.txt"
  grep -qF '192 / 64 = 3' "$root/docs/deploy.md"
  grep -qF ' --max-instances=3 ' "$BATS_TEST_DIRNAME/golden/deploy-l4.txt"
}
