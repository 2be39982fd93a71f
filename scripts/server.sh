# Sourced by scripts that need a running server: `start_server CHECKPOINT` starts bin/dgemma-server on a free port, waits
# until it is ready and sets `url`; it is stopped when the script ends.
# shellcheck shell=bash

root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
server_log=$(mktemp -t dgemma-server.XXXXXX)
server_pid=
url=

stop_server() {
  [ -z "$server_pid" ] || kill "$server_pid" 2>/dev/null || true
  [ -z "$server_pid" ] || wait "$server_pid" 2>/dev/null || true
  rm -f "$server_log"
}
trap stop_server EXIT

# Plain bash, so that neither curl nor anything else is needed.
server_ready() {
  local address=${url#http://}
  exec 3<>"/dev/tcp/${address%:*}/${address##*:}" || return 1
  printf 'GET /readyz HTTP/1.0\r\nHost: %s\r\n\r\n' "$address" >&3
  head -n 1 <&3 | grep -q ' 200 '
}

start_server() {
  # The address is read from the log, whatever the caller's own settings are.
  env -u RUST_LOG -u DGEMMA_ADDR "$root/bin/dgemma-server" --model "$1" --addr 127.0.0.1:0 >"$server_log" 2>&1 &
  server_pid=$!
  for _ in $(seq 1 600); do
    if ! kill -0 "$server_pid" 2>/dev/null; then
      echo "the server ended early:" >&2
      cat "$server_log" >&2
      return 1
    fi
    url=$(sed -n 's/.*listening on \(http:[^ ]*\).*/\1/p' "$server_log" | head -n 1)
    if [ -n "$url" ] && (server_ready) 2>/dev/null; then
      return 0
    fi
    sleep 0.1
  done
  echo "the server was not ready after 60 seconds:" >&2
  cat "$server_log" >&2
  return 1
}
