"""Random 4 KiB reads through NVMe queues that a controller made of software serves, beside fio and plain loops."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.harness import Comparison, Sizes, Spent, Work, compare
from benchmarks.ssd import fio_reads
from tiering.artifacts.direct_io import ALIGNMENT
from tiering.artifacts.storage import reserve, storage_errors
from tiering.doctor import fill_random
from tiering.errors import CapabilityError
from tiering.lookahead.disk_speed import DEPTH
from tiering.units import format_bytes

_AMOUNT = 1000
"""Reads that the reported seconds are for."""
_CACHED_BYTES, _MEMORY_BYTES = 16 << 20, 1 << 20
"""Images that are read from the page cache and from memory: small, so that what the queues cost is seen."""
_EXT = Path(__file__).parents[1] / "ext"
_PROGRAM = Path(__file__).parent / "programs" / "nvme_queues.cpp"
_SOURCES = [
    "nvme/soft_controller.cpp", "nvme/usual_medium.cpp", "nvme/softnvme_engine.cpp", "nvme/host_engine.cpp",
    "nvme/engine_reads.cpp",
    "io/read_engine.cpp", "io/image_set.cpp", "io/uring_engine.cpp", "io/threads_engine.cpp", "io/mmap_engine.cpp",
    "fork_mutex.cpp", "parallel.cpp",
]  # fmt: skip


def nvme(sizes: Sizes) -> Iterator[Comparison]:
    """Reads per second with many in flight, and one by one."""
    nbytes = max(ALIGNMENT, sizes.image_bytes // ALIGNMENT * ALIGNMENT)
    with storage_errors(sizes.folder), tempfile.TemporaryDirectory(prefix="tiering-bench-", dir=sizes.folder) as inside:
        program = _compile(Path(inside))
        for medium, size in (("direct", nbytes), ("cached", _CACHED_BYTES), ("memory", _MEMORY_BYTES)):
            image = Path(inside) / f"{medium}.image"
            reserve(image, size)
            with image.open("r+b") as file:
                fill_random(file.fileno(), size)

            def run(what: str, medium: str = medium, image: Path = image) -> Work:
                command = [str(program), what, medium, str(image), str(DEPTH), str(sizes.seconds)]

                def work() -> Spent:
                    done = subprocess.run(command, capture_output=True, text=True, check=True)
                    return Spent(_AMOUNT / float(done.stdout), 0.0)

                return work

            def fio(image: Path = image) -> Spent:
                return Spent(_AMOUNT / fio_reads(image, sizes.seconds), 0.0)

            peers: dict[str, Work | str] = {"plain loop": run("plain"), "one by one": run("alone")}
            if medium == "direct":
                peers["fio"] = fio if shutil.which("fio") else "not installed"
            about = {"medium": medium, "size": format_bytes(size), "depth": DEPTH, "seconds": sizes.seconds}
            yield compare(
                "nvme", run("queues"), peers, amount=_AMOUNT, unit="reads", repeats=sizes.repeats, parameters=about
            )


def _compile(folder: Path) -> Path:
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        raise CapabilityError("nvme: expected a C++ compiler (c++ or g++) for the program that submits reads")
    made = folder / "nvme_queues"
    options = ["-O3", "-DNDEBUG", "-march=native", "-std=c++20", "-pthread", f"-I{_EXT / 'include'}"]
    sources = [str(_EXT / "src" / source) for source in _SOURCES]
    subprocess.run([compiler, *options, str(_PROGRAM), *sources, "-luring", "-o", str(made)], check=True)
    return made
