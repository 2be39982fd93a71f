#!/usr/bin/env bash
# Runs the commands of README.md as they stand there: the server block in the background, then every client block.
# The port is replaced by a free one, so that a server of yours on 8080 is left alone. Needs `make build` first.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
port=$((20000 + RANDOM % 20000))
log=$(mktemp -t dgem-readme.XXXXXX)
pid=
stop() {
  [ -z "$pid" ] || kill "$pid" 2>/dev/null || true
  [ -z "$pid" ] || wait "$pid" 2>/dev/null || true
  rm -f "$log"
}
trap stop EXIT

# Prints the fenced blocks whose opening line is ```sh KIND.
blocks() {
  awk -v open="\`\`\`sh $1" '$0 == open {inside = 1; next} /^```/ {inside = 0} inside' README.md | sed "s/127\.0\.0\.1:8080/127.0.0.1:$port/g"
}

export DGEMMA_ADDR=127.0.0.1:$port DGEM_URL=http://127.0.0.1:$port/v1
server=$(blocks server)
client=$(blocks client)
[ -n "$server" ] && [ -n "$client" ] || { echo "README.md has no server or client block" >&2; exit 1; }
bash -euc "exec $server" >"$log" 2>&1 &
pid=$!
for _ in $(seq 1 300); do
  kill -0 "$pid" 2>/dev/null || { cat "$log" >&2; exit 1; }
  if (exec 3<>"/dev/tcp/127.0.0.1/$port" && printf 'GET /readyz HTTP/1.0\r\n\r\n' >&3 && head -n 1 <&3 | grep -q ' 200 ') 2>/dev/null; then
    break
  fi
  sleep 0.1
done
bash -euxo pipefail -c "$client"
echo
echo "README.md: every command ran"
