# Sourced by cloudrun/teardown.sh and gce/teardown.sh, after cloud.sh: deletes what is found, then looks again, for only what
# nobody finds any more is gone. A KIND is a function that lists things, a line each: the name, then the zone if it has one.
# shellcheck shell=bash disable=SC2034,SC2154

# One thing that cannot be listed or deleted keeps nothing else from being deleted.
go_on=1
failed=
all=
! on ALL "${ALL:-}" || all=1

# A question that fails makes the whole fail, for then nobody knows what is there. A dry run finds nothing.
list() {
  query "$@" || [ -n "$dry" ] || broken "could not list: $(quoted gcloud "$@")" 'the reason stands above'
}

# remove KIND WORD… [-- FLAG…]: deletes with these words of gcloud, and flags behind the name, what there is of a kind.
remove() {
  local lines name zone kind=$1 command=()
  shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do
    command+=("$1")
    shift
  done
  [ $# -eq 0 ] || shift
  lines=$("$kind") || failed=1
  [ -z "$dry" ] || lines=NAME
  while read -r name zone _; do
    # A deletion that fails shows why. What it means is seen when we look again.
    [ -z "$name" ] || attempt "${command[@]}" "$name" ${zone:+"--zone=$zone"} "$@" --quiet || true
  done <<<"$lines"
}

# left KIND…: adds what there still is to `remains`.
left() {
  local lines name zone kind
  for kind in "$@"; do
    lines=$("$kind") || failed=1
    while read -r name zone _; do
      [ -z "$name" ] || remains+="  ${kind//_/ }: $name${zone:+ ($zone)}"$'\n'
    done <<<"$lines"
  done
}

show_remains() {
  [ -z "$remains" ] || {
    say "what remains:"
    printf '%s' "$remains" >&2
  }
}
