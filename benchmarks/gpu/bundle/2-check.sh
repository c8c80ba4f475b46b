#!/usr/bin/env bash
# What only a GPU shows: tests at the border to torch and the driver; memory errors and uninitialised reads in the kernels.
# Tests provoke errors of the runtime, which are no errors of theirs; races are looked for in shared memory alone.
. "$(dirname "$0")/common.sh"
need_build

step "beside torch" 240 "$python" -m pytest "${pytest[@]}" tests/loader/gpu/test_beside_torch.py
for tool in "memcheck --report-api-errors no" initcheck racecheck; do
  if [[ $tool == racecheck ]] && ! grep -rqE '__shared__|cub/block|cub/warp' ext/cuda; then
    note racecheck "not needed" 0 "no kernel of ours has shared memory"
    continue
  fi
  for test in "$work"/build/tests-cuda/cuda_test_*; do
    # shellcheck disable=SC2086 # several words
    step "${tool%% *} $(basename "$test")" 60 compute-sanitizer --tool $tool --error-exitcode 1 "$test"
  done
done
finish
