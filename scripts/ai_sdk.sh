#!/usr/bin/env bash
# Runs the npm package @ai-sdk/openai-compatible (ai_sdk/client.mjs) against dgemma-server on the demo checkpoint and against a server
# with scripted replies; then opencode itself, with the configuration of docs/server.md, against the latter.
# Called by .ci/run after `make build`. Usage: scripts/ai_sdk.sh. Needs node 18 with npm and, the first time, the npm registry; without
# node it says so and checks nothing.
set -euo pipefail
. "$(dirname "$0")/server.sh"
if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
  echo "ai sdk: not checked: node and npm are not installed" >&2
  exit 0
fi
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

# Packages as the lock file has them, outside the tree; the name changes with the lock file, so it never goes stale.
packages() {
  local lock=$root/scripts/ai_sdk/package-lock.json
  modules=${XDG_CACHE_HOME:-$HOME/.cache}/dgem/ai-sdk-$(cksum <"$lock" | cut -d ' ' -f 1)
  [ ! -e "$modules/complete" ] || return 0
  rm -rf "$modules"
  mkdir -p "$modules"
  cp "$root/scripts/ai_sdk/package.json" "$lock" "$modules"
  (cd "$modules" && npm ci --silent --no-audit --no-fund --ignore-scripts) ||
    {
      echo "ai sdk: the packages of scripts/ai_sdk could not be installed; they come from the npm registry" >&2
      return 1
    }
  touch "$modules/complete"
}
packages

# The replies that client.mjs expects, in its order.
replies=$(node -e '
  const city = (name, days) => `<|tool_call>call:weather{city:<|"|>${name}<|"|>,days:${days}}<tool_call|>`;
  console.log(JSON.stringify([
    "Hello, 東京 🙂!",
    "<|channel>thought\nTwo and two.\n<channel|>Four.",
    city(`Köln {"x"}`, 2) + city("Bonn", 3),
    "word ".repeat(500),
  ]))')
cargo build --quiet --manifest-path "$root/Cargo.toml" --workspace --example scripted
work=$(mktemp -d -t dgemma-ai-sdk.XXXXXX)
scripted_pids=()
trap 'kill "${scripted_pids[@]}" 2>/dev/null || true; rm -rf "$work"; stop_server' EXIT

# `start_scripted REPLIES` starts a server with these replies, a JSON list, and sets `scripted` to its address.
start_scripted() {
  local log=$work/scripted-${#scripted_pids[@]}.log
  DGEMMA_SCRIPT=$1 "${CARGO_TARGET_DIR:-$root/target}/debug/examples/scripted" --model "$root/fixtures/demo-model" 2>"$log" &
  scripted_pids+=($!)
  for _ in $(seq 1 300); do
    scripted=$(sed -n 's/.*listening on \(http:[^ ]*\).*/\1/p' "$log" | head -n 1)
    [ -z "$scripted" ] || return 0
    kill -0 "${scripted_pids[-1]}" 2>/dev/null || break
    sleep 0.1
  done
  cat "$log" >&2
  return 1
}

start_scripted "$replies"
start_server "$root/fixtures/demo-model"

cp "$root/scripts/ai_sdk/client.mjs" "$modules/client.mjs"
node "$modules/client.mjs" "$url" "$scripted"

opencode=1.18.33
case "$(uname -s)-$(uname -m)" in
  Linux-x86_64) platform=linux-x64 ;;
  Linux-aarch64) platform=linux-arm64 ;;
  *)
    echo "opencode: not checked on this system" >&2
    exit 0
    ;;
esac
folder=${XDG_CACHE_HOME:-$HOME/.cache}/dgem/opencode-$opencode
if [ ! -e "$folder/complete" ]; then
  rm -rf "$folder"
  mkdir -p "$folder"
  npm install --silent --no-audit --no-fund --ignore-scripts --prefix "$folder" "opencode-$platform@$opencode" ||
    {
      echo "opencode: not checked: it could not be installed from the npm registry" >&2
      exit 0
    }
  touch "$folder/complete"
fi
start_scripted '["Hello from the script."]'
configuration='{
  "provider": {
    "diffgemma": {
      "npm": "@ai-sdk/openai-compatible",
      "name": "diffgemma (local)",
      "options": { "baseURL": "'"$scripted"'/v1", "apiKey": "unused" },
      "models": { "diffgemma-26b-a4b-it-q4": { "name": "DiffGemma 26B-A4B q4" } }
    }
  }
}'
# A home of its own: neither the caller's settings nor his conversations have a part in it.
reply=$(cd "$work" && env HOME="$work" XDG_CONFIG_HOME="$work" XDG_DATA_HOME="$work" XDG_CACHE_HOME="$work" OPENCODE_CONFIG_CONTENT="$configuration" \
  timeout 120 "$folder/node_modules/opencode-$platform/bin/opencode" run -m diffgemma/diffgemma-26b-a4b-it-q4 "Say hello" </dev/null 2>&1) ||
  {
    echo "opencode failed:" >&2
    echo "$reply" >&2
    exit 1
  }
case $reply in
  *"Hello from the script."*) echo "opencode $opencode: its configuration works as docs/server.md has it" ;;
  *)
    echo "opencode shows something else:" >&2
    echo "$reply" >&2
    exit 1
    ;;
esac
