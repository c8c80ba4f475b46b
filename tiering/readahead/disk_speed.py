"""The speed of the disks of an ssd tier: the two figures by which reading is planned."""

from __future__ import annotations

import contextlib
import json
import math
import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.storage import ALIGNMENT, aligned_bytes, storage_errors
from tiering.errors import FormatError, InputError
from tiering.units import format_bytes

MEASURED = "measured"  # instead of a file: measure the disks, or take their cached figures
CACHE = ".tiering-disks.json"  # file next to a layout with the measured figures by device
DEPTH = 128  # random reads in flight, as of the loader
MAX_READ = 256 << 10  # bytes of the loader's longest read
_STREAMS, _MOST_STREAMS = 32, 128  # large reads in flight, as of the loader: for each stripe file, and in all
_SECONDS = 0.3  # seconds of a loader's measurement of each figure


@dataclass(frozen=True)
class DiskSpeed:
    """A model of disks: a read's request and bytes take time at once, added like the legs of a right triangle."""

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
        return _speed_in(json.loads(text))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(
            f"{path}: expected a JSON object with numbers reads_per_second and bytes_per_second ({error!r})"
        ) from None


def _speed_in(document: Any) -> DiskSpeed:
    speed = DiskSpeed(float(document["reads_per_second"]), float(document["bytes_per_second"]))
    if not all(math.isfinite(figure) and figure > 0 for figure in vars(speed).values()):
        raise InputError(
            f"reads_per_second and bytes_per_second: expected more than 0 and no infinity, found {vars(speed)}"
        )
    return speed


def speed_of(images: Sequence[Path], model: str | Path, folder: Path) -> DiskSpeed:
    """Return the model in a file; ``measured``: that of these devices, measured now or cached in `folder`."""
    if str(model) != MEASURED:
        return read_speed(Path(model))
    devices = set()
    for image in images:
        with storage_errors(image):
            number = image.stat().st_dev
        devices.add(f"{os.major(number)}:{os.minor(number)}")
    cache, key = folder / CACHE, "+".join(sorted(devices))
    known: dict[str, Any] = {}
    with contextlib.suppress(OSError, KeyError, ValueError, TypeError, InputError):  # not written here: measured anew
        known = dict(json.loads(cache.read_bytes()))
        return _speed_in(known[key])
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
    reads = random_reads(native.SsdReader(paths, ALIGNMENT, "auto", DEPTH, "auto"), size * len(paths), seconds)
    return DiskSpeed(reads, large_reads(paths, size, seconds))


def random_reads(reader: native.SsdReader, size: int, seconds: float) -> float:
    """Return the pages of 4 KiB per second of the gather that training uses; `size`: bytes of the reader's files."""
    return _gather_pages(reader, ALIGNMENT, max(1, size // ALIGNMENT), 20_000, seconds)[0]


def large_reads(paths: Sequence[str], size: int, seconds: float) -> float:
    """Return the bytes per second of scattered reads of `MAX_READ` in the first `size` bytes of each file."""
    page, depth = 1 << min(MAX_READ, size).bit_length() - 1, min(_MOST_STREAMS, _STREAMS * len(paths))
    reader = native.SsdReader(list(paths), page, "auto", depth, "auto")
    return _gather_pages(reader, page, size // page * len(paths), 2 * depth, seconds)[1]


def _gather_pages(reader: native.SsdReader, page: int, pages: int, batch: int, seconds: float) -> tuple[float, float]:
    """Gather so many random pages at a time; returns reads and bytes per second."""
    table = native.TieredTable(page, [0, 0, 0, pages], None, [], None, reader, 0, page, 1, page)
    out = aligned_bytes(min(batch, pages) * page).reshape(-1, page)
    rng, reads, nbytes, start = np.random.default_rng(1), 0, 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or not reads:
        stats = table.gather(rng.integers(0, pages, len(out)), out)
        reads, nbytes = reads + stats.reads, nbytes + stats.read_bytes
    return reads / elapsed, nbytes / elapsed
