#!/usr/bin/env bash
# The server on this machine, in the background: `local.sh serve|stop|status|download`, called by the Makefile.
# Settings: MODEL (a checkpoint folder), ADDR, CTX; the server's own DGEMMA_… variables hold too. Its process number lies in
# dgemma-server.pid, its output in server.log. A server in the foreground: bin/dgemma-server.
set -euo pipefail

root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
server=$root/bin/dgemma-server
pid_file=$root/dgemma-server.pid
log=$root/server.log

for number in "${WAIT_SECONDS:-600}" "${STOP_SECONDS:-15}"; do
  [[ $number =~ ^(0|[1-9][0-9]{0,5})$ ]] || {
    echo "error: WAIT_SECONDS and STOP_SECONDS are whole numbers, not '$number'" >&2
    echo "hint: WAIT_SECONDS=600 STOP_SECONDS=15" >&2
    exit 2
  }
done

say() { printf '%s\n' "$*" >&2; }

# Sets `pid` if the server runs. The number of a process that ended may belong to another program by now.
running() {
  pid=
  [ -f "$pid_file" ] || return 1
  pid=$(<"$pid_file")
  [[ $pid =~ ^[0-9]+$ ]] && [[ $(ps -p "$pid" -o args= 2>/dev/null) == *dgemma-server* ]]
}

forget_stale() {
  if [ -f "$pid_file" ]; then
    say "note: $pid_file was left by a server that runs no more (process ${pid:-unknown})"
    rm -f "$pid_file"
  fi
}

# The address it listens on, once it does; an address for every interface is asked on this machine.
url() {
  sed -nE 's/.*listening on (http:[^ "]*).*/\1/p' "$log" 2>/dev/null | head -n 1 | sed 's/0\.0\.0\.0/127.0.0.1/; s/\[::\]/[::1]/'
}

# Sets `phase`: ready, or what /readyz says instead.
ask_phase() {
  local address reply
  phase=starting
  address=$(url)
  [ -n "$address" ] || return 0
  reply=$(curl --silent --max-time 5 --noproxy '*' --write-out '\n%{http_code}' "$address/readyz") || return 0
  case $reply in
    *$'\n'200) phase=ready ;;
    *) phase=$(sed -nE 's/.*"phase": ?"([a-z_]+)".*/\1/p' <<<"$reply") ;;
  esac
}

serve() {
  if running; then
    say "dgemma-server runs already: process $pid, $(url); stop it with: make stop"
    return
  fi
  forget_stale
  if [ ! -x "$server" ]; then
    say "error: there is no $server"
    say "hint: make build"
    return 2
  fi
  local options=()
  [ -z "${MODEL:-}" ] || options+=(--model "$MODEL")
  [ -z "${ADDR:-}" ] || options+=(--addr "$ADDR")
  [ -z "${CTX:-}" ] || options+=(--ctx "$CTX")
  # What an earlier server wrote must not be taken for this one's.
  : >"$log"
  # Plain lines: the address is read from them.
  (
    cd "$root"
    RUST_LOG=info DGEMMA_LOG_FORMAT=text exec nohup "$server" ${options[@]+"${options[@]}"} >"$log" 2>&1 </dev/null
  ) &
  pid=$!
  printf '%s\n' "$pid" >"$pid_file"

  local seen='' deadline=$((SECONDS + ${WAIT_SECONDS:-600}))
  while true; do
    if ! kill -0 "$pid" 2>/dev/null; then
      rm -f "$pid_file"
      say "error: the server ended; its last words ($log):"
      tail -n 20 "$log" >&2
      return 1
    fi
    ask_phase
    [ "$phase" = "$seen" ] || say "$phase"
    seen=$phase
    [ "$phase" != ready ] || break
    if [ "$SECONDS" -ge "$deadline" ]; then
      say "error: not ready after ${WAIT_SECONDS:-600} seconds; it goes on loading"
      say "hint: look with: make status; its output is in $log"
      return 1
    fi
    sleep "${POLL_SECONDS:-0.2}"
  done
  say "dgemma-server: process $pid, $(url), output in $log; stop it with: make stop"
}

stop() {
  if ! running; then
    forget_stale
    say "no server runs"
    return
  fi
  kill "$pid"
  # It answers what it has begun, for 8 seconds at most.
  local deadline=$((SECONDS + ${STOP_SECONDS:-15}))
  while kill -0 "$pid" 2>/dev/null; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      say "note: process $pid did not end in time and is killed"
      kill -9 "$pid" 2>/dev/null || true
      break
    fi
    sleep 0.1
  done
  rm -f "$pid_file"
  say "stopped process $pid"
}

# Exit 0: ready. 1: it runs, and is not ready. 3: it does not run.
status() {
  if ! running; then
    forget_stale
    echo "dgemma-server: stopped"
    return 3
  fi
  ask_phase
  echo "dgemma-server: $phase, process $pid, $(url), output in $log"
  [ "$phase" = ready ]
}

# The weights of REPO at REVISION, into model/; without these the server's own choice.
download() {
  if [ ! -x "$server" ]; then
    say "error: there is no $server"
    say "hint: make build"
    return 2
  fi
  cd "$root"
  exec "$server" download ${REPO:+--repo "$REPO"} ${REVISION:+--revision "$REVISION"} ${JOBS:+--jobs "$JOBS"}
}

case ${1:-} in
  serve | stop | status | download) "$1" ;;
  *)
    say "usage: local.sh serve|stop|status|download"
    exit 2
    ;;
esac
