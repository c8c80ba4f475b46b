#!/usr/bin/env bash
# Seconds per access, for `tiering layout --access-costs`; epochs of GraphSAGE by where rows lie, and with rows on SSD.
. "$(dirname "$0")/common.sh"
need_build

threads=$(nproc)
benchmark gpu-times 80 --threads "$threads" --gpu-times-out "$out/access-costs.json"
benchmark gpu-epoch 220 --threads "$threads"
benchmark gpu-ssd 160 --threads "$threads"
finish
