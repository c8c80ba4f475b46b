"""Random rows from the ssd tier beside fio's random direct reads: same file, depth and size, in one run.

fio's rate counts reads per second. Ours counts rows per second, and beside it reads per second, because a gather
merges rows that lie next to each other and reads repeated rows once; the ratio quoted is the stricter one, of reads.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.storage import open_raw, reserve, storage_errors
from tiering.bench.harness import Comparison, Peer
from tiering.bench.sizes import Sizes
from tiering.errors import CapabilityError, InputError
from tiering.units import format_bytes, parse_bytes

_PAGE = 4096
_CHUNK = 64 * 1024 * 1024
_AMOUNT = 1000
"""Reads that the reported seconds are for."""


def random_rows(
    folder: str | os.PathLike[str] = ".",
    *,
    size: str | int = "4GiB",
    row_bytes: int = _PAGE,
    depth: int = 128,
    engine: str = "io_uring",
    batch_rows: int = 50_000,
    seconds: float = 3.0,
    repeats: int = 5,
    with_memmap: bool = True,
) -> Comparison:
    """Gather random rows from an image in `folder`, and let fio read the same file, in turn.

    Parameters
    ----------
    folder
        On the device to measure; a temporary image of `size` is written there and removed.
    size
        Size of the image; larger than the device's cache.
    row_bytes
        Size of a row, one of 512, 1024, 2048, 4096 (whole sectors that divide a page).
    depth
        Reads in flight, ours and fio's.
    engine
        ``io_uring``, ``threads`` or ``mmap``.
    batch_rows
        Rows per gather.
    seconds
        Length of each side's turn.
    repeats
        Turns of each side.
    with_memmap
        Also time NumPy's fancy indexing into a memory map, cold, at a hundredth of the rows.

    Returns
    -------
    Comparison
        Seconds for a thousand reads (a thousand rows for the memory map), by turn; ours counts the reads that reached
        the device, several rows of one page being one read.
    """
    if row_bytes not in (512, 1024, 2048, 4096):
        raise InputError(f"row_bytes: expected 512, 1024, 2048 or 4096, found {row_bytes}")
    if engine == "io_uring" and (reason := native.uring_unavailable()):
        raise CapabilityError(f"engine io_uring: {reason}")
    nbytes = parse_bytes(size, "size") // _PAGE * _PAGE
    if nbytes < _PAGE:
        raise InputError(f"size: expected at least {_PAGE} bytes, found {nbytes}")
    fio = shutil.which("fio")
    peers = {"fio": Peer("fio", note="" if fio else "not installed"), "memmap": Peer("numpy memmap, cold")}
    ours: list[float] = []
    with test_image(Path(folder), nbytes) as image:
        reader = native.SsdReader([str(image)], _PAGE, engine, depth, "auto")
        gather = _Gather(reader, nbytes, row_bytes, batch_rows)
        gather.run(min(1.0, seconds))  # warm-up
        for _ in range(repeats):
            ours.append(_AMOUNT / gather.run(seconds)[0])
            if fio is not None:
                peers["fio"].seconds.append(_AMOUNT / _fio_reads(fio, image, row_bytes, depth, seconds))
            if with_memmap:
                rows = _memmap_rows(image, row_bytes, max(100, batch_rows // 100))
                peers["memmap"].seconds.append(_AMOUNT / rows)
        parameters = {
            "size": format_bytes(nbytes), "row_bytes": row_bytes, "depth": depth, "engine": engine,
            "direct": reader.direct, "batch_rows": batch_rows, "seconds": seconds, "repeats": repeats,
        }  # fmt: skip
    sides = [peer for peer in peers.values() if peer.seconds or peer.note]
    return Comparison("ssd", parameters, ours, sides, _AMOUNT, "reads")


def bench_ssd(sizes: Sizes) -> Comparison:
    """`random_rows` in `sizes.folder`."""
    return random_rows(sizes.folder, size=sizes.image_bytes, seconds=sizes.seconds, repeats=sizes.repeats)


@contextmanager
def test_image(folder: Path, nbytes: int) -> Iterator[Path]:
    """A file of random bytes in `folder` (holes and zeros would be served without the device), removed afterwards."""
    with storage_errors(folder), tempfile.TemporaryDirectory(prefix="tiering-bench-", dir=folder) as inside:
        image = Path(inside) / "image"
        reserve(image, nbytes)
        rng = np.random.default_rng(0)
        with image.open("r+b") as file:
            for start in range(0, nbytes, _CHUNK):
                file.write(rng.bytes(min(_CHUNK, nbytes - start)))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        yield image


class _Gather:
    """Repeated gathers of fresh random rows from one image into one buffer."""

    def __init__(self, reader: native.SsdReader, nbytes: int, row_bytes: int, batch_rows: int) -> None:
        self._rows = nbytes // row_bytes
        self._table = native.TieredTable(
            row_bytes, [0, 0, 0, self._rows], None, [], None, reader, 0, row_bytes, _PAGE // row_bytes, _PAGE
        )
        raw = np.zeros(batch_rows * row_bytes + _PAGE, np.uint8)
        start = -raw.ctypes.data % _PAGE
        self._out: npt.NDArray[np.uint8] = raw[start : start + batch_rows * row_bytes].reshape(batch_rows, row_bytes)
        self._rng = np.random.default_rng(1)

    def run(self, seconds: float) -> tuple[float, float]:
        """Reads and rows per second."""
        reads = rows = 0
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds or not rows:
            ids = self._rng.integers(0, self._rows, len(self._out))
            reads += self._table.gather(ids, self._out).reads
            rows += len(ids)
        return reads / elapsed, rows / elapsed


def _fio_reads(fio: str, image: Path, row_bytes: int, depth: int, seconds: float) -> float:
    """Random direct reads per second by fio with io_uring (libaio where io_uring is not to be had)."""
    backend = "libaio" if native.uring_unavailable() else "io_uring"
    command = [
        fio, "--name=read", f"--filename={image}", "--rw=randread", f"--bs={row_bytes}", f"--iodepth={depth}",
        f"--ioengine={backend}", "--direct=1", "--time_based", f"--runtime={max(1, round(seconds))}",
        "--readonly", "--output-format=json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise CapabilityError(f"fio failed with exit code {done.returncode}: {done.stderr.strip()[-500:]}")
    return float(json.loads(done.stdout)["jobs"][0]["read"]["iops"])


def _memmap_rows(image: Path, row_bytes: int, count: int) -> float:
    """Rows per second of ``memmap[ids]`` with the page cache emptied of the file first."""
    fd = os.open(image, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)
    table = open_raw(image, np.dtype(np.uint8), (image.stat().st_size // row_bytes, row_bytes))
    ids = np.random.default_rng(2).integers(0, len(table), count)
    start = time.perf_counter()
    _ = table[ids]
    return count / (time.perf_counter() - start)
