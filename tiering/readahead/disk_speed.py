"""The speed of the disks of an ssd tier: the two figures by which reading is planned."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.direct_io import ALIGNMENT, aligned_bytes
from tiering.artifacts.storage import storage_errors
from tiering.errors import FormatError, InputError, StorageError
from tiering.units import format_bytes

MEASURED = "measured"  # instead of a file: measure the disks, or take their cached figures
CACHE = ".tiering-disks.json"  # file next to a layout with the measured figures by device
DEPTH = 128  # random reads in flight, as of the loader
MAX_READ = 256 << 10  # bytes of the loader's longest read
_STREAMS, _MOST_STREAMS = 32, 128  # large reads in flight, as of the loader: for each stripe file, and in all
_SECONDS = 0.3  # seconds of a loader's measurement of each figure


@dataclass(frozen=True)
class DiskSpeed:
    """A model of one or more disks: requests and bytes take time at once; the larger is the bound.

    Where both count, their times are added like the legs of a right triangle. A read of 4 KiB costs the measured time.
    """

    reads_per_second: float  # random reads of 4 KiB, many in flight
    bytes_per_second: float  # of random reads of `MAX_READ`, many in flight

    def seconds(self, reads: float, nbytes: float) -> float:
        """Return the time of `reads` requests of `nbytes` in all."""
        return math.hypot(reads * self._request, nbytes / self.bytes_per_second)

    @property
    def gap(self) -> int:
        """Bytes that take as long as one request: at most so many are read rather than skipped."""
        return int(self._request * self.bytes_per_second)

    @property
    def _request(self) -> float:
        """Seconds of a request in addition to those of its bytes."""
        read, bytes_of_it = 1 / self.reads_per_second, ALIGNMENT / self.bytes_per_second
        return math.sqrt(max(0.0, read**2 - bytes_of_it**2))

    def __str__(self) -> str:
        return f"{self.reads_per_second:,.0f} random reads/s, {format_bytes(self.bytes_per_second)}/s in large reads"


_UNKNOWN = DiskSpeed(100_000, 1e9)  # where no stripe file has a whole block to read


def read_speed(path: Path) -> DiskSpeed:
    """Read the model in a JSON file: ``reads_per_second`` and ``bytes_per_second``, as of ``tiering doctor --json``."""
    with storage_errors(path):
        text = path.read_bytes()
    try:
        speed = _speed_in(json.loads(text))
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path}: expected a JSON object with numbers reads_per_second and bytes_per_second ({error!r})"
        ) from None
    if not _sensible(speed):
        raise InputError(
            f"{path}: reads_per_second and bytes_per_second: expected more than 0 and no infinity, found "
            f"{speed.reads_per_second} and {speed.bytes_per_second}"
        )
    return speed


def _speed_in(document: Any) -> DiskSpeed:
    return DiskSpeed(float(document["reads_per_second"]), float(document["bytes_per_second"]))


def _sensible(speed: DiskSpeed) -> bool:
    return all(math.isfinite(figure) and figure > 0 for figure in asdict(speed).values())


def speed_of(images: Sequence[Path], model: str | Path, folder: Path) -> DiskSpeed:
    """Return the model in the file `model`; ``measured``: the cached figures of these devices, else measured now.

    New figures are cached in `folder` if it can be written.
    """
    if str(model) != MEASURED:
        return read_speed(Path(model))
    devices = set()
    for image in images:
        with storage_errors(image):
            number = image.stat().st_dev
        devices.add(f"{os.major(number)}:{os.minor(number)}")
    cache, key = folder / CACHE, "+".join(sorted(devices))
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, KeyError, ValueError, TypeError):  # what was not written here: measured anew
        known = dict(json.loads(cache.read_bytes()))
        if _sensible(speed := _speed_in(known[key])):
            return speed
    speed = measure(images)
    with contextlib.suppress(OSError):  # nobody needs the cache
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=CACHE, delete=False) as file:
            json.dump({**known, key: asdict(speed)}, file, indent=1)
        Path(file.name).replace(cache)
    return speed


def measure(images: Sequence[Path], seconds: float = _SECONDS) -> DiskSpeed:
    """Measure random reads of all stripe files at once, first of 4 KiB, then of `MAX_READ`. Cost: `seconds` twice."""
    sizes = {}
    for image in images:
        with storage_errors(image):
            sizes[str(image)] = image.stat().st_size // ALIGNMENT * ALIGNMENT
    paths = [path for path, size in sizes.items() if size]
    if not paths:
        return _UNKNOWN
    size = min(sizes[path] for path in paths)
    reader = native.SsdReader(paths, ALIGNMENT, "auto", DEPTH, "auto")
    reads = random_reads(reader, size * len(paths), seconds)
    return DiskSpeed(reads, large_reads(paths, size, reader.direct, seconds))


def random_reads(reader: native.SsdReader, size: int, seconds: float) -> float:
    """Return the pages of 4 KiB per second of the gather that training uses; `size`: bytes of the reader's files."""
    pages = max(1, size // ALIGNMENT)
    table = native.TieredTable(ALIGNMENT, [0, 0, 0, pages], None, [], None, reader, 0, ALIGNMENT, 1, ALIGNMENT)
    batch = min(20_000, pages)
    out = aligned_bytes(batch * ALIGNMENT).reshape(batch, ALIGNMENT)
    rng, reads, start = np.random.default_rng(1), 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or not reads:
        reads += table.gather(rng.integers(0, pages, batch), out).reads
    return reads / elapsed


def large_reads(paths: Sequence[str], size: int, direct: bool, seconds: float = 60.0) -> float:
    """Return the bytes per second of scattered reads of `MAX_READ` in the first `size` bytes of each file."""
    files = [os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0)) for path in paths]
    pieces, streams = -(-size // MAX_READ), max(1, min(_STREAMS, _MOST_STREAMS // len(files)))
    step = int(0.618 * pieces) | 1  # leads to every piece once, far from the one before
    while math.gcd(step, pieces) > 1:
        step += 2
    buffers = [aligned_bytes(MAX_READ) for _ in range(streams * len(files))]
    start = time.perf_counter()

    def stream(k: int) -> int:
        file, path, got = files[k % len(files)], paths[k % len(files)], 0
        for i in range(k // len(files), pieces, streams):
            at = i * step % pieces * MAX_READ
            with storage_errors(Path(path)):
                read = os.preadv(file, [buffers[k].data], at)
            if read < min(MAX_READ, size - at):
                raise StorageError(errno.EIO, f"{path}: a read ended early")
            got += read
            if time.perf_counter() - start > seconds:
                break
        return got

    try:
        with ThreadPoolExecutor(len(buffers)) as pool:
            nbytes = sum(pool.map(stream, range(len(buffers))))
        return nbytes / (time.perf_counter() - start)
    finally:
        for file in files:
            os.close(file)
