#!/usr/bin/env bash
# Sampling with lists here and there, what a profiler says of the kernels, and how long a gather takes beside training. The
# CPU's sampler gets two threads, as benchmarks without a GPU have them.
. "$(dirname "$0")/common.sh"
need_build

benchmark gpu-sampling 240
benchmark gpu-latency 90
benchmark gpu-profile 130
finish
