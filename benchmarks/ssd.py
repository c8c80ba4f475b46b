"""Random rows from the ssd tier against fio's random direct reads: same file, depth and size, in one run.

Ours counts the reads that reach the device: a gather merges rows that lie next to each other and reads repeated rows
once.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from benchmarks.harness import Comparison, Sizes, Spent, Work, compare
from tiering import native
from tiering.artifacts.storage import ALIGNMENT, reserve, storage_errors
from tiering.errors import CapabilityError
from tiering.pipeline.doctor import fill_random
from tiering.readahead.disk_speed import DEPTH, random_reads
from tiering.text.units import format_bytes

_AMOUNT = 1000
"""Reads that the reported seconds are for."""


def ssd(sizes: Sizes) -> Comparison:
    """Gather random 4 KiB rows from an image in `sizes.folder`, and let fio read the same file, in turn."""
    nbytes = max(ALIGNMENT, sizes.image_bytes // ALIGNMENT * ALIGNMENT)
    with storage_errors(sizes.folder), tempfile.TemporaryDirectory(prefix="tiering-bench-", dir=sizes.folder) as inside:
        image = Path(inside) / "image"
        reserve(image, nbytes)
        with image.open("r+b") as file:
            fill_random(file.fileno(), nbytes)
        reader = native.SsdReader([str(image)], ALIGNMENT, "auto", DEPTH, "auto")

        def ours() -> Spent:
            return Spent(_AMOUNT / random_reads(reader, nbytes, sizes.seconds), 0.0)

        def fio() -> Spent:
            return Spent(_AMOUNT / fio_reads(image, sizes.seconds), 0.0)

        peers: dict[str, Work | str] = {"fio": fio if shutil.which("fio") else "not installed"}
        about = {
            "size": format_bytes(nbytes), "row_bytes": ALIGNMENT, "depth": DEPTH, "engine": reader.engine,
            "direct": reader.direct, "seconds": sizes.seconds,
        }  # fmt: skip
        return compare("ssd", ours, peers, amount=_AMOUNT, unit="reads", repeats=sizes.repeats, parameters=about)


def fio_reads(image: Path, seconds: float) -> float:
    """Return random direct reads per second by fio with io_uring (libaio where io_uring is not to be had)."""
    backend = "libaio" if native.uring_unavailable() else "io_uring"
    command = [
        "fio", "--name=read", f"--filename={image}", "--rw=randread", f"--bs={ALIGNMENT}", f"--iodepth={DEPTH}",
        f"--ioengine={backend}", "--direct=1", "--time_based", f"--runtime={max(1, round(seconds))}",
        "--readonly", "--output-format=json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CapabilityError(f"fio failed with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])
