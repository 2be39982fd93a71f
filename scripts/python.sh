# Sourced by scripts that need Python packages: `python_environment NAME` makes a virtual environment with the versions that
# scripts/NAME.txt lists, outside the tree, and sets `environment`. Its name ends with a sum of the list, so it never goes stale.
# Needs python3 with venv and, the first time, PyPI.
# shellcheck shell=bash

python_environment() {
  local requirements sum
  requirements=$(dirname "${BASH_SOURCE[0]}")/$1.txt
  sum=$(cksum <"$requirements" | cut -d ' ' -f 1)
  if ! python3 -c 'import ensurepip, venv' 2>/dev/null; then
    echo "$1: python3 with its venv module is needed; install it (on Debian and Ubuntu the package python3-venv)" >&2
    return 1
  fi
  if [ -z "${XDG_CACHE_HOME:-${HOME:-}}" ]; then
    echo "$1: neither HOME nor XDG_CACHE_HOME is set, so there is no place for the packages" >&2
    return 1
  fi
  environment=${XDG_CACHE_HOME:-$HOME/.cache}/dgem/$1-$sum
  [ ! -e "$environment/complete" ] || return 0
  rm -rf "$environment"
  python3 -m venv "$environment"
  if ! "$environment/bin/pip" install --quiet --no-deps --requirement "$requirements"; then
    echo "$1: the packages of $requirements could not be installed; they come from PyPI" >&2
    return 1
  fi
  touch "$environment/complete"
}
