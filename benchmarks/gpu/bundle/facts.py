"""``python3 facts.py JSON``: what this machine is, before anything is built, as a table and as JSON.

Needs nothing but Python's own modules. Speeds, io_uring and locked memory: `tiering doctor`, once it is built.
"""

from __future__ import annotations

import json
import os
import platform
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = (
    *("torch", "numpy", "pyarrow", "tqdm", "click", "typer", "xxhash", "scikit-build-core", "nanobind"),
    *("pytest", "pytest-xdist", "hypothesis", "scipy", "torch-geometric", "pip", "cmake", "ninja"),
)
TOOLS = ("nvcc", "c++", "cmake", "ninja", "pkg-config", "compute-sanitizer", "ncu", "nvidia-smi", "fio")
GPU = (
    *("name", "compute_cap", "driver_version", "memory.total", "clocks.max.sm", "clocks.max.memory", "power.limit"),
    *(
        "pcie.link.gen.current",
        "pcie.link.gen.max",
        "pcie.link.width.current",
        "pcie.link.width.max",
        "ecc.mode.current",
    ),
)
NOT_HERE = "not here"


def printed(*command: str) -> str:
    """Return the output of a command, or why it printed nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired) as error:
        return NOT_HERE if isinstance(error, FileNotFoundError) else str(error)
    return done.stdout.strip() or f"failed: {done.stderr.strip()[:200]}"


def text_of(path: str) -> str:
    """Return a line of the kernel's."""
    try:
        return Path(path).read_text().strip()
    except OSError:
        return NOT_HERE


def gpus() -> dict[str, str]:
    """Return the driver's facts of each GPU, asked one by one: a question with an unknown word is refused whole."""
    if shutil.which("nvidia-smi") is None:
        return {"GPU": NOT_HERE}
    asked = {f"GPU {field}": printed("nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader") for field in GPU}
    links = printed("nvidia-smi", "topo", "-m")
    return {name: ", ".join(said.splitlines()) for name, said in asked.items()} | {"GPU links": links}


def package(name: str) -> str:
    """Return the version of a package."""
    try:
        return version(name)
    except PackageNotFoundError:
        return NOT_HERE


def tool(name: str) -> str:
    """Return where a tool is, and the line of its version that has one in it."""
    path = shutil.which(name)
    if path is None:
        return NOT_HERE
    lines = [line for line in printed(path, "--version").splitlines() if re.search(r"\d\.\d", line)]
    return f"{path}: {lines[0].strip()}" if lines else path


def machine() -> dict[str, str]:
    """Return processor, memory, what the kernel gives."""
    memory = dict(
        re.findall(r"^(MemTotal|MemAvailable|HugePages_Total|Hugepagesize):\s+(.*)$", text_of("/proc/meminfo"), re.M)
    )
    model = re.search(r"^model name\s*: (.*)$", text_of("/proc/cpuinfo"), re.M)
    huge = "/sys/kernel/mm/transparent_hugepage"
    soft, hard = (
        "unlimited" if value == resource.RLIM_INFINITY else str(value)
        for value in resource.getrlimit(resource.RLIMIT_MEMLOCK)
    )
    return {
        "processor": model[1] if model else platform.machine(),
        "cores": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()}",
        "kernel": platform.release(),
        "C library": " ".join(platform.libc_ver()),
        "memory": ", ".join(f"{name} {value}" for name, value in memory.items()),
        "control group's memory": text_of("/sys/fs/cgroup/memory.max"),
        "page size": str(os.sysconf("SC_PAGE_SIZE")),
        "huge pages": text_of(f"{huge}/enabled"),
        "huge pages, shared memory": text_of(f"{huge}/shmem_enabled"),
        "huge pages, defrag": text_of(f"{huge}/defrag"),
        "memlock, soft and hard": f"{soft}, {hard}",
        "NUMA nodes": text_of("/sys/devices/system/node/online"),
        "user": str(os.getuid()),
    }


def python() -> dict[str, str]:
    """Return the interpreter, and whether modules can be compiled for it."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    cuda = printed(sys.executable, "-c", "import torch; print(torch.version.cuda, torch.cuda.is_available())")
    return {
        "python": f"{platform.python_version()}, {sys.executable}",
        "Python.h": str(header) if header.exists() else NOT_HERE,
        "torch: its CUDA, and whether it answers": cuda.splitlines()[-1] if cuda else "",
    }


def main(out: str) -> None:
    """Print the table, leave the JSON."""
    disks = {f"free in {folder}": f"{shutil.disk_usage(folder).free >> 30} GiB" for folder in ("/tmp", "/dev/shm", ".")}
    facts = {
        **gpus(), **machine(), **disks, **python(),
        **{name: tool(name) for name in TOOLS}, **{f"package {name}": package(name) for name in PACKAGES},
    }  # fmt: skip
    Path(out).write_text(json.dumps(facts, indent=1) + "\n")
    width = max(map(len, facts))
    for name, value in facts.items():
        print(f"{name.ljust(width)}  {value}")


if __name__ == "__main__":
    main(sys.argv[1])
