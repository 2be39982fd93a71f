#!/usr/bin/env bash
# Shows one real decision: starts dgemma-server on the demo checkpoint and a free port, asks it with dgem, stops it.
# Called by `make demo`, which builds both programs first.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
server="$root/bin/dgemma-server"
client="$root/bin/dgem"
log=$(mktemp -t dgemma-demo.XXXXXX)
pid=

stop() {
  [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
  [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
  rm -f "$log"
}
trap stop EXIT

give_up() {
  echo "demo: $1; the server said:" >&2
  cat "$log" >&2
  exit 1
}

"$server" --model "$root/fixtures/demo-model" --addr 127.0.0.1:0 >"$log" 2>&1 &
pid=$!

# The server prints the address it got, then answers /readyz once the model is warm.
url=
for _ in $(seq 1 300); do
  kill -0 "$pid" 2>/dev/null || give_up "the server ended early"
  url=$(sed -n 's/.*listening on \(http:[^ ]*\).*/\1/p' "$log" | head -n 1)
  [ -z "$url" ] || break
  sleep 0.1
done
[ -n "$url" ] || give_up "no address after 30 seconds"
address=${url#http://}
ready() {
  # Plain bash, so that the demo needs neither curl nor anything else.
  exec 3<>"/dev/tcp/${address%:*}/${address##*:}" || return 1
  printf 'GET /readyz HTTP/1.0\r\nHost: %s\r\n\r\n' "$address" >&3
  head -n 1 <&3 | grep -q ' 200 '
}
for _ in $(seq 1 300); do
  kill -0 "$pid" 2>/dev/null || give_up "the server ended early"
  ! (ready) 2>/dev/null || break
  sleep 0.1
done
(ready) 2>/dev/null || give_up "not ready after 30 seconds"

"$client" decide -u "$url/v1" -t "$root/templates/support_triage.json.tmpl" \
  -v 'ticket=I was billed $500 twice for my annual renewal this morning!' --stats
