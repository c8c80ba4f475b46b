#!/usr/bin/env bash
# What the machine is; the build, for the GPU that is there; C++ tests and tests marked `gpu`, but those of 2-check.sh.
# CUDA, CUDA_TESTS: the build's TIERING_CUDA and TIERING_CUDA_TESTS. TIERING_BUILD: more options for pip, such as -Ccmake.define.NAME=VALUE.
. "$(dirname "$0")/common.sh"
rm -rf "$work/built" "$work/venv"

shown facts 60 python3 "$bundle/facts.py" "$out/facts.json"
# pip need not be there: the packages of python3, pip among them, are seen from the new environment, wherever they lie.
step environment 60 python3 -m venv --without-pip "$work/venv"
step "its packages" 60 python3 "$bundle/see_packages.py" "$python"

build=("-Cbuild-dir=$work/build" -Ccmake.define.TIERING_CUDA="${CUDA:-ON}" -Ccmake.define.TIERING_CUDA_TESTS="${CUDA_TESTS:-ON}")
export CMAKE_PREFIX_PATH=$bundle/liburing # where liburing's headers are looked for, after the system's
version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
include=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')
if [[ ! -e $include/Python.h && -d $bundle/python/$version ]]; then
  build+=("-Ccmake.define.Python_INCLUDE_DIR=$bundle/python/$version")
elif [[ ! -e $include/Python.h ]]; then
  note headers missing 0 "no Python.h in $include, none of $version in the bundle: make it with NODE_PYTHON=$version"
fi
# shellcheck disable=SC2086 # several words
step build 330 "$python" -m pip install -v --no-index --no-build-isolation --no-deps --no-compile "${build[@]}" \
  ${TIERING_BUILD:-} -e . && touch "$work/built"
[[ -e $work/built ]] || finish

shown "what the build found" 30 "$work/venv/bin/tiering" info --build
# All that tests and benchmarks import, so that what is missing is said before the GPU is asked for.
mapfile -t tests < <(grep -lr --include='test_*.py' 'mark\.gpu' tests)
step "tests found" 60 "$python" -m pytest "${pytest[@]}" --collect-only "${tests[@]}"
step "benchmarks found" 60 "$python" -c 'from importlib import import_module; from benchmarks.__main__ import *
names = gpu_names(); [import_module("benchmarks." + BENCHMARKS[name][0].rpartition(".")[0]) for name in names]
print(*names)'
first_call || finish
shown "disk and limits" 60 "$work/venv/bin/tiering" doctor --ssd "$work"
for test in "$work"/build/tests-cuda/cuda_test_*; do
  step "$(basename "$test")" 60 "$test"
done
step "pytest -m gpu" 200 "$python" -m pytest "${pytest[@]}" "${tests[@]}" \
  --deselect tests/loader/gpu/test_beside_torch.py
finish
