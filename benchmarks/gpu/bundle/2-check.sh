#!/usr/bin/env bash
# What only a GPU shows: tests at the border to torch and the driver; memory errors in the kernels.
. "$(dirname "$0")/common.sh"
need_build

step "beside torch" 240 "$python" -m pytest "${pytest[@]}" tests/loader/gpu/test_beside_torch.py
sanitize memcheck --report-api-errors no # tests provoke errors of the runtime, which are no errors of theirs
finish
