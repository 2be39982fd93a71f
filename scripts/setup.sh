#!/usr/bin/env bash
# Names what is needed to build and run dgem here, one by one, with the way to install what is missing.
# Called by `make setup`, which builds afterwards. Changes nothing.
set -euo pipefail

root=$(CDPATH='' cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
system=$(uname -s)
missing=0

# need PROGRAM WHAT-FOR LINUX-PACKAGE MAC-COMMAND
need() {
  if command -v "$1" >/dev/null; then
    echo "  ok       $1"
    return
  fi
  local how="sudo apt-get install $3"
  [ "$system" != Darwin ] || how=$4
  echo "  missing  $1 ($2); install it: $how"
  missing=1
}

# Whether version $1 is at least $2.
at_least() {
  local a b i IFS=.
  # shellcheck disable=SC2206 # split at the points
  a=($1) b=($2)
  for i in 0 1 2; do
    ((10#${a[i]:-0} == 10#${b[i]:-0})) || return $((10#${a[i]:-0} < 10#${b[i]:-0}))
  done
}

echo "needed to build:"
wanted=$(sed -nE 's/^rust-version = "(.*)"/\1/p' "$root/Cargo.toml")
rustup="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh"
if ! command -v cargo >/dev/null; then
  echo "  missing  cargo (Rust $wanted or newer); install it: $rustup"
  missing=1
else
  have=$(cargo --version | cut -d ' ' -f 2)
  if at_least "${have%%-*}" "$wanted"; then
    echo "  ok       cargo $have"
  else
    echo "  too old  cargo $have (Rust $wanted or newer is needed); renew it: rustup update"
    missing=1
  fi
fi
need cc 'links the programs' build-essential 'xcode-select --install'
need git 'names the revision' git 'xcode-select --install'
echo "needed to run the examples:"
need curl 'asks the server' curl 'brew install curl'
need jq 'reads its answers' jq 'brew install jq'
[ "$missing" -eq 0 ] || echo "install what is missing, then run this again: make setup"
exit "$missing"
