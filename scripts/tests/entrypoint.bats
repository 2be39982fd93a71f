#!/usr/bin/env bats
# cloudrun/entrypoint.sh with fake drivers, and a server that says how it was started.
load common

# driver CUDA CAPABILITY: what nvidia-smi says.
driver() {
  fake nvidia-smi <<F
#!/bin/bash
case "\$*" in
  *compute_cap*) echo '${2:0:-1}.${2: -1}' ;;
  *) echo '| NVIDIA-SMI 535.1   Driver Version: 535.1   CUDA Version: $1   |' ;;
esac
F
}

start() {
  fake dgemma-server <<'F'
#!/bin/bash
echo "addr=$DGEMMA_ADDR path=$LD_LIBRARY_PATH arguments=$*"
F
  export NVIDIA_ROOT=$BATS_TEST_TMPDIR/nvidia CUDA_COMPAT=/compat LD_LIBRARY_PATH=''
  run "$root/cloudrun/entrypoint.sh" "$@"
}

cuda() { export DGEMMA_BUILD_CUDA=12.9 DGEMMA_BUILD_CAPABILITY=$1; }

@test "a driver older than the build gets the compatibility libraries, and no other" {
  cuda 80
  for version in 12.2 12.8 11.8; do
    driver "$version" 89
    start
    [ "$status" -eq 0 ]
    [[ $output == *'path=/compat '* ]]
  done
  for version in 12.9 12.10 13.0; do
    driver "$version" 89
    start
    [ "$status" -eq 0 ]
    [[ $output == *'path= '* ]]
  done
}

@test "the driver's own libraries are found where the platform mounts them" {
  cuda 80
  driver 12.2 89
  mkdir -p "$BATS_TEST_TMPDIR/nvidia/lib64"
  start
  [[ $output == *"path=/compat:$BATS_TEST_TMPDIR/nvidia/lib64 "* ]]
}

@test "a GPU that the kernels are not built for is one sentence with the way out" {
  for pair in '80 120' '80 90' '120 89' '90 100'; do
    read -r built seen <<<"$pair"
    cuda "$built"
    driver 13.0 "$seen"
    start
    [ "$status" -eq 1 ]
    [[ $output == *"built for compute capability $built"*"has $seen"*hint:* ]]
    [[ $output != *addr=* ]]
  done
  for pair in '80 80' '80 86' '80 89' '120 120' '120 121' '90 90'; do
    read -r built seen <<<"$pair"
    cuda "$built"
    driver 13.0 "$seen"
    start
    [ "$status" -eq 0 ]
  done
}

@test "without nvidia-smi, or when it says nothing, the server starts with a warning" {
  cuda 80
  PATH=$BATS_TEST_TMPDIR/bin:/usr/bin:/bin start
  [ "$status" -eq 0 ]
  [[ $output == *'warning: nvidia-smi is not there'*addr=* ]]
  fake nvidia-smi <<<'#!/bin/bash
exit 9'
  start
  [ "$status" -eq 0 ]
  [[ $output == *warning*addr=* ]]
}

@test "the CPU image asks for no driver" {
  driver 12.2 89
  start
  [ "$status" -eq 0 ]
  [ "$output" = 'addr=0.0.0.0:8080 path= arguments=' ]
}

@test "port, address and arguments reach the server" {
  PORT=9000 start --ctx 100
  [[ $output == *'addr=0.0.0.0:9000 '*'arguments=--ctx 100' ]]
  DGEMMA_ADDR=127.0.0.1:1 start
  [[ $output == 'addr=127.0.0.1:1 '* ]]
}

@test "the server takes the place of the script, so that signals reach it" {
  fake dgemma-server <<<'#!/bin/bash
echo "$$"'
  "$root/cloudrun/entrypoint.sh" >"$BATS_TEST_TMPDIR/pid" &
  pid=$!
  wait "$pid"
  [ "$(cat "$BATS_TEST_TMPDIR/pid")" = "$pid" ]
}
