# Sourced by gce/deploy.sh: `need_precision` sets machine, GPUs, disk and the server's settings from PRECISION.
# GPUs come with these machine types; nothing else attaches them.
# shellcheck shell=bash disable=SC2034

need_precision() {
  precision=${PRECISION:-4}
  case $precision in
    # 1 × L4, 24 GB; the host has 32 GB.
    4) machine=g2-standard-8 gpus=1 disk_gb=100 default_quant=none device_map=none default_repo=nvidia/diffusiongemma-26B-A4B-it-NVFP4 ;;
    # 1 × A100, 40 GB: stored in bf16, quantised while it is loaded.
    8) machine=a2-highgpu-1g gpus=1 disk_gb=200 default_quant=q8_0 device_map=none default_repo=google/diffusiongemma-26B-A4B-it ;;
    # 2 × A100, 80 GB together: bf16 as it is stored, half of the 30 layers on each.
    16) machine=a2-highgpu-2g gpus=2 disk_gb=200 default_quant=none device_map=cuda:0=0-14,cuda:1=15-29 default_repo=google/diffusiongemma-26B-A4B-it ;;
    *) fail "PRECISION=$(quoted "${precision:0:80}") is not known" "4 (one L4), 8 (one A100) or 16 (two A100)" ;;
  esac
}
