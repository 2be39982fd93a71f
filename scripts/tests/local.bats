#!/usr/bin/env bats
# The scripts for the server on this machine, with a small program in its place; the last test takes the real one.
load common

# A tree of our own, with a space in its path.
tree() {
  copy="$BATS_TEST_TMPDIR/a tree"
  mkdir -p "$copy/bin"
  cp -r "$root/scripts" "$root/Makefile" "$root/Cargo.toml" "$copy"
  cat >"$copy/bin/dgemma-server"
  chmod +x "$copy/bin/dgemma-server"
}

# Ready when it has been asked once, on a free port; EARLY ends it at once, NEVER keeps it loading, STUBBORN ignores signals.
server() {
  tree <<'F'
#!/usr/bin/env python3
"""dgemma-server"""
import http.server, os, signal, sys, threading
if os.environ.get("EARLY"):
    sys.exit("error: no checkpoint\nhint: name one")
print("arguments:", sys.argv[1:], flush=True)
asked = 0
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        global asked
        asked += 1
        ready = asked > 1 and not os.environ.get("NEVER")
        body = b'{"status":"ok"}' if ready else b'{"phase":"loading","bytes_loaded":1}'
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_): pass
httpd = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
signal.signal(signal.SIGTERM, (lambda *_: None) if os.environ.get("STUBBORN") else (lambda *_: os._exit(0)))
print(f"INFO listening on http://127.0.0.1:{httpd.server_port} at once", flush=True)
httpd.serve_forever()
F
}

local_sh() { "$copy/scripts/local.sh" "$@" 3>&-; }

teardown() {
  [ ! -f "${copy:-/nowhere}/dgemma-server.pid" ] || kill -9 "$(<"$copy/dgemma-server.pid")" 2>/dev/null || true
}

@test "serve waits until the server answers, status tells, stop ends it" {
  server
  MODEL="a model" CTX=100 ADDR=127.0.0.1:0 run local_sh serve
  [ "$status" -eq 0 ]
  [[ $output == *loading*ready*'process '*http://127.0.0.1:* ]]
  grep -q "'--model', 'a model', '--addr', '127.0.0.1:0', '--ctx', '100'" "$copy/server.log"
  pid=$(<"$copy/dgemma-server.pid")
  run local_sh status
  [ "$status" -eq 0 ]
  [[ $output == "dgemma-server: ready, process $pid, http://"* ]]
  run local_sh stop
  [ "$status" -eq 0 ]
  [[ $output == *"stopped process $pid"* ]]
  run kill -0 "$pid"
  [ "$status" -ne 0 ]
  [ ! -e "$copy/dgemma-server.pid" ]
  run local_sh status
  [ "$status" -eq 3 ]
  run local_sh stop
  [ "$status" -eq 0 ]
  [[ $output == *'no server runs'* ]]
}

@test "a second serve says that it runs already, and starts nothing" {
  server
  local_sh serve
  pid=$(<"$copy/dgemma-server.pid")
  run local_sh serve
  [ "$status" -eq 0 ]
  [[ $output == *"runs already: process $pid, http://127.0.0.1:"* ]]
  [ "$(<"$copy/dgemma-server.pid")" = "$pid" ]
}

@test "a process number that is stale, or belongs to another program by now, is put aside" {
  server
  for stale in 999999999 $$ nonsense ''; do
    echo "$stale" >"$copy/dgemma-server.pid"
    run local_sh status
    [ "$status" -eq 3 ]
    [[ $output == *'runs no more'*stopped ]]
    [ ! -e "$copy/dgemma-server.pid" ]
  done
  echo $$ >"$copy/dgemma-server.pid"
  run local_sh serve
  [ "$status" -eq 0 ]
  [[ $output == *'runs no more'*ready* ]]
  local_sh stop
  # The other program is left alone.
  kill -0 $$
  echo $$ >"$copy/dgemma-server.pid"
  run local_sh stop
  [[ $output == *'no server runs'* ]]
  kill -0 $$
}

@test "a server that ends early is an error with its last words" {
  server
  EARLY=1 run local_sh serve
  [ "$status" -eq 1 ]
  [[ $output == *'error: no checkpoint'*'hint: name one'* ]]
  [ ! -e "$copy/dgemma-server.pid" ]
}

@test "a server that loads for long is waited for no longer than asked, and goes on" {
  server
  NEVER=1 WAIT_SECONDS=1 run local_sh serve
  [ "$status" -eq 1 ]
  [[ $output == *'not ready after 1 seconds'* ]]
  for _ in $(seq 200); do grep -q listening "$copy/server.log" && break || sleep 0.1; done
  run local_sh status
  [ "$status" -eq 1 ]
  [[ $output == *'dgemma-server: loading'* ]]
}

@test "a server that does not end is killed in the end" {
  server
  STUBBORN=1 local_sh serve
  pid=$(<"$copy/dgemma-server.pid")
  STOP_SECONDS=1 run local_sh stop
  [ "$status" -eq 0 ]
  [[ $output == *'is killed'* ]]
}

@test "without the program there is a hint" {
  server
  rm "$copy/bin/dgemma-server"
  for verb in serve download; do
    run local_sh "$verb"
    [ "$status" -eq 2 ]
    [[ $output == *'hint: make build'* ]]
  done
  run local_sh dance
  [ "$status" -eq 2 ]
}

@test "download hands repository, commit and jobs on, and fills model/ of the tree" {
  tree <<<'#!/bin/bash
printf "%s|" "$PWD" "$@"'
  run local_sh download
  [ "$output" = "$copy|download|" ]
  REPO=a/b REVISION=$commit JOBS=2 run local_sh download
  [ "$output" = "$copy|download|--repo|a/b|--revision|$commit|--jobs|2|" ]
}

@test "make serve, stop, status and the local stack come to the same" {
  server
  make -C "$copy" --no-print-directory local-up MODEL=m 3>&-
  grep -q "'--model', 'm'" "$copy/server.log"
  make -C "$copy" --no-print-directory local-status
  make -C "$copy" --no-print-directory status
  make -C "$copy" --no-print-directory local-down
  run make -C "$copy" --no-print-directory status
  [ "$status" -ne 0 ]
  make -C "$copy" --no-print-directory serve 3>&-
  make -C "$copy" --no-print-directory stop
}

@test "setup names what is missing, and how to install it, on each system" {
  tools=$BATS_TEST_TMPDIR/tools
  mkdir "$tools"
  for name in bash dirname sed cut env; do ln -s "$(command -v "$name")" "$tools/$name"; done
  bare() { PATH=$tools "$root/scripts/setup.sh"; }
  printf '#!%s\necho Linux\n' "$(command -v bash)" >"$tools/uname"
  chmod +x "$tools/uname"
  run bare
  [ "$status" -eq 1 ]
  [[ $output == *'missing  cargo'*sh.rustup.rs*'missing  cc'*build-essential*'missing  git'*'missing  curl'*'missing  jq'*'apt-get install jq'* ]]
  printf '#!%s\necho Darwin\n' "$(command -v bash)" >"$tools/uname"
  run bare
  [[ $output == *'xcode-select --install'*'brew install jq'* ]]
  for name in cc git curl jq; do cp "$tools/uname" "$tools/$name"; done
  wanted=$(sed -nE 's/^rust-version = "(.*)"/\1/p' "$root/Cargo.toml")
  for pair in "1.2.3 1" "0.99.0 1" "$wanted.0 0" "1.999.1-nightly 0" "2.0.0 0"; do
    read -r version code <<<"$pair"
    printf '#!%s\necho cargo %s x\n' "$(command -v bash)" "$version" >"$tools/cargo"
    chmod +x "$tools/cargo"
    run bare
    [ "$status" -eq "$code" ]
  done
}

@test "the real server is served and stopped the same way" {
  [ -x "$root/bin/dgemma-server" ] || skip "not checked: bin/dgemma-server is not built"
  tree <"$root/bin/dgemma-server"
  MODEL=$root/fixtures/demo-model ADDR=127.0.0.1:0 local_sh serve
  run local_sh status
  [ "$status" -eq 0 ]
  local_sh stop
}

@test "the scripts find their tree where cd looks elsewhere" {
  tree <<<'#!/bin/bash'
  cd "$copy"
  mkdir -p elsewhere/scripts
  CDPATH=$copy/elsewhere:. scripts/setup.sh >/dev/null
  CDPATH=$copy/elsewhere:. run scripts/local.sh status
  [ "$status" -eq 3 ]
  [ "$output" = 'dgemma-server: stopped' ]
}

@test "times that are no numbers are refused, and not reckoned with" {
  server
  for name in WAIT_SECONDS STOP_SECONDS; do
    for value in 'a[$(touch "$BATS_TEST_TMPDIR/canary")]' 08 1.5; do
      run env "$name=$value" "$copy/scripts/local.sh" serve
      [ "$status" -eq 2 ]
      [[ $output == *'are whole numbers'*hint:* ]]
    done
  done
  [ ! -e "$BATS_TEST_TMPDIR/canary" ]
}
