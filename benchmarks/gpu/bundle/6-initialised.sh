#!/usr/bin/env bash
# Uninitialized reads in the kernels, and races in shared memory.
. "$(dirname "$0")/common.sh"
need_build

sanitize initcheck
if grep -rqE '__shared__|cub/block|cub/warp' ext/cuda; then
  sanitize racecheck
else
  note racecheck "not needed" 0 "no kernel of ours has shared memory"
fi
finish
