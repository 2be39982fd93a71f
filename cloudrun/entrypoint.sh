#!/usr/bin/env bash
# Starts dgemma-server in a container: listens on the port the platform names, finds the driver's libraries, takes CUDA's
# compatibility libraries where the driver is older than the build, and says in one sentence when the GPU does not fit.
# Arguments go to the server. Tested in scripts/tests/entrypoint.bats.
set -euo pipefail

export DGEMMA_ADDR=${DGEMMA_ADDR:-0.0.0.0:${PORT:-8080}}
nvidia=${NVIDIA_ROOT:-/usr/local/nvidia}
compat=${CUDA_COMPAT:-/usr/local/cuda/compat}

prepend() { export LD_LIBRARY_PATH=$1${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}; }

# A version as a number: 12.9 → 1209.
number() {
  local major=${1%%.*} minor=
  case $1 in *.*) minor=${1#*.} ;; esac
  minor=${minor%%.*}
  printf '%d' $((10#${major:-0} * 100 + 10#${minor:-0}))
}

# Kernels of one capability run on: their own generation from there on (8.0 also on 8.6 and 8.9), and no other.
fits() {
  case $1 in
    80) [ "$2" -ge 80 ] && [ "$2" -le 89 ] ;;
    120) [ "$2" -ge 120 ] && [ "$2" -le 121 ] ;;
    *) [ "$1" -eq "$2" ] ;;
  esac
}

if [ -n "${DGEMMA_BUILD_CAPABILITY:-}" ]; then
  # Cloud Run and Container-Optimized OS put the driver there.
  if [ -d "$nvidia/lib64" ]; then prepend "$nvidia/lib64"; fi
  PATH=$PATH:$nvidia/bin
  if ! command -v nvidia-smi >/dev/null; then
    echo "warning: nvidia-smi is not there, so neither driver nor GPU are checked" >&2
  else
    seen=$(nvidia-smi 2>/dev/null | sed -nE 's/.*CUDA Version: *([0-9]+\.[0-9]+).*/\1/p' | head -n 1) || seen=
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -n 1 | tr -dc '0-9') || capability=
    if [ -n "$capability" ] && ! fits "$DGEMMA_BUILD_CAPABILITY" "$capability"; then
      echo "error: this image is built for compute capability $DGEMMA_BUILD_CAPABILITY and does not run on this GPU, which has $capability" >&2
      echo "hint: L4 (89) and A100 (80) take the image cuda80, RTX PRO 6000 (120) takes cuda120" >&2
      exit 1
    fi
    if [ -z "$seen" ]; then
      echo "warning: nvidia-smi does not tell the driver's CUDA version" >&2
    elif [ "$(number "$seen")" -lt "$(number "$DGEMMA_BUILD_CUDA")" ]; then
      echo "the driver knows CUDA $seen, the build is $DGEMMA_BUILD_CUDA: using $compat" >&2
      prepend "$compat"
    fi
  fi
fi
exec dgemma-server "$@"
