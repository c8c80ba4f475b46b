"""The speed of the disks of an ssd tier, by which reading is planned, and how many reads are in flight for it."""

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
from tiering.machine import boot_id
from tiering.text.units import format_bytes

MEASURED = "measured"  # instead of a file: measure the disks, or take their cached figures
CACHE = ".tiering-disks.json"  # file next to a layout with the measured figures by device
DEPTH = native.DEFAULT_DEPTH  # random reads in flight for each stripe file, at least, unless fewer are asked for
_MOST_DEPTH = 256  # as many as the loader's staging memory has room for, each of `MAX_READ`
_PROBED = 1024  # random reads in flight that find a disk's peak
MAX_READ = 256 << 10  # bytes of the loader's longest read
_STREAMS, _MOST_STREAMS = 32, 128  # large reads in flight, as of the loader: for each stripe file, and in all
_SECONDS = 0.3  # seconds of a loader's measurement of each figure


@dataclass(frozen=True)
class DiskSpeed:
    """The affine model of disks: a read takes the time of a request and the time of its bytes."""

    reads_per_second: float  # random reads of 4 KiB, many in flight
    bytes_per_second: float  # of random reads of `MAX_READ`, many in flight
    latency: float | None = None  # seconds of one random read of 4 KiB, alone in flight; None: not known

    def seconds(self, reads: float, nbytes: float) -> float:
        """Return the time of `reads` requests of `nbytes` in all."""
        return reads * self._request + nbytes / self.bytes_per_second

    def peak_share(self, in_flight: float) -> float | None:
        """Return the fraction of the peak that so many reads in flight reach at most; ``None``: not known."""
        return None if self.latency is None else min(1.0, in_flight / (self.reads_per_second * self.latency))

    def as_dict(self) -> dict[str, float]:
        """Return the known figures, as a model's file has them."""
        return {name: figure for name, figure in asdict(self).items() if figure is not None}

    @property
    def gap(self) -> int:
        """Bytes that take as long as one request: at most so many are read rather than skipped."""
        return int(self._request * self.bytes_per_second)

    @property
    def _request(self) -> float:
        """Seconds of a request in addition to the time of its bytes."""
        return max(0.0, 1 / self.reads_per_second - ALIGNMENT / self.bytes_per_second)

    def __str__(self) -> str:
        alone = "" if self.latency is None else f", {1e6 * self.latency:,.0f} us for a single read"
        large = f"{format_bytes(self.bytes_per_second)}/s in large reads"
        return f"{self.reads_per_second:,.0f} random reads/s{alone}, {large}"


@dataclass(frozen=True)
class QueueDepth:
    """Random reads in flight for each stripe file, at most, and why; `peak_share`: see `DiskSpeed.peak_share`."""

    depth: int
    reason: str
    peak_share: float | None = None

    @classmethod
    def choose(cls, asked: int | str, speed: DiskSpeed | None, drives: int) -> QueueDepth:
        """Return the requested depth; ``auto``: reads per second times latency (Little's law), as far as known.

        At least `DEPTH`, because most disks take longer for each of many reads than for one alone.
        """
        if asked != "auto":
            chosen, reason = int(asked), "asked for"
        elif speed is None or speed.latency is None:
            chosen, reason = DEPTH, "the default, because the disks' latency is unknown"
        else:
            needed = math.ceil(speed.reads_per_second * speed.latency / drives - 1e-9)
            chosen = min(_MOST_DEPTH, max(DEPTH, needed))
            bound = "" if chosen == needed else f", at {'least' if chosen > needed else 'most'} {chosen}"
            figures = f"{speed.reads_per_second:,.0f} reads/s x {1e6 * speed.latency:,.0f} us"
            reason = f"{figures} = {needed:,} for each of {drives}{bound}"
        return cls(chosen, reason, None if speed is None else speed.peak_share(chosen * drives))

    def __str__(self) -> str:
        share = "" if self.peak_share is None else f": {self.peak_share:.0%} of the disks' peak"
        return f"{self.depth:,} reads in flight for each stripe file ({self.reason}){share}"


_UNKNOWN = DiskSpeed(100_000, 1e9)  # where no stripe file has a whole block to read


def read_speed(path: Path) -> DiskSpeed:
    """Read the model in a JSON file: the fields of `DiskSpeed`, as in ``tiering doctor --json``."""
    with storage_errors(path):
        text = path.read_bytes()
    try:
        return _speed_in(json.loads(text))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(
            f"{path}: expected a JSON object with numbers reads_per_second and bytes_per_second ({error!r})"
        ) from None


def _speed_in(document: Any) -> DiskSpeed:
    names = ("reads_per_second", "bytes_per_second", *(["latency"] if document.get("latency") is not None else []))
    figures = {name: float(document[name]) for name in names}
    if not all(math.isfinite(figure) and figure > 0 for figure in figures.values()):
        raise InputError(f"{', '.join(names)}: expected finite values above 0, found {figures}")
    return DiskSpeed(**figures)


def measured_speed(images: Sequence[Path], folder: Path) -> DiskSpeed:
    """Return the model of these devices, measured now or cached in `folder`."""
    speed, known, key = cached_speed(images, folder)
    if speed is not None:
        return speed
    speed = measure(images)
    with contextlib.suppress(OSError):  # nobody needs the cache
        with tempfile.NamedTemporaryFile("w", dir=folder, prefix=CACHE, delete=False) as file:
            json.dump({**known, key: speed.as_dict()}, file, indent=1)
        Path(file.name).replace(folder / CACHE)
    return speed


def cached_speed(images: Sequence[Path], folder: Path) -> tuple[DiskSpeed | None, dict[str, Any], str]:
    """Return the figures of these devices in the folder's cache, if any, all of the cache, and their key there."""
    devices = set()
    for image in images:
        with storage_errors(image):
            number = image.stat().st_dev
        devices.add(f"{os.major(number)}:{os.minor(number)}")
    known, key = dict[str, Any](), f"{boot_id()} {'+'.join(sorted(devices))}"
    with contextlib.suppress(OSError, KeyError, ValueError, TypeError, AttributeError, InputError):  # measured anew
        known = dict(json.loads((folder / CACHE).read_bytes()))
        return _speed_in(known[key]), known, key
    return None, known, key


def measure(images: Sequence[Path], seconds: float = _SECONDS) -> DiskSpeed:
    """Measure random reads of all files at once, `seconds` for each: of 4 KiB, one and many, and of `MAX_READ`."""
    sizes = {}
    for image in images:
        with storage_errors(image):
            sizes[str(image)] = image.stat().st_size // ALIGNMENT * ALIGNMENT
    paths = [path for path, size in sizes.items() if size]
    if not paths:
        return _UNKNOWN
    size = min(sizes[path] for path in paths)
    depths = {1: 20, min(4096, _PROBED * len(paths)): 8_192}  # and reads of a gather, into 32 MiB
    readers = ((native.SsdReader(paths, ALIGNMENT, "auto", depth, "auto"), n) for depth, n in depths.items())
    alone, peak = (random_reads(reader, size * len(paths), seconds, batch) for reader, batch in readers)
    return DiskSpeed(max(peak, alone), large_reads(paths, size, seconds), 1 / alone)


def random_reads(reader: native.SsdReader, size: int, seconds: float, batch: int = 20_000) -> float:
    """Return the pages of 4 KiB per second of the gather that training uses; `size`: bytes of the reader's files."""
    return _gather_pages(reader, ALIGNMENT, max(1, size // ALIGNMENT), batch, seconds)[0]


def large_reads(paths: Sequence[str], size: int, seconds: float) -> float:
    """Return the bytes per second of scattered reads of `MAX_READ` in the first `size` bytes of each file."""
    page, depth = 1 << min(MAX_READ, size).bit_length() - 1, min(_MOST_STREAMS, _STREAMS * len(paths))
    reader = native.SsdReader(list(paths), page, "auto", depth, "auto")
    return _gather_pages(reader, page, size // page * len(paths), 2 * depth, seconds)[1]


def _gather_pages(reader: native.SsdReader, page: int, pages: int, batch: int, seconds: float) -> tuple[float, float]:
    """Gather so many random pages at a time; returns reads and bytes per second."""
    table = native.TieredTable(page, [0, 0, 0, pages], None, [], None, reader, 0, page, 1, page, page)
    out = aligned_bytes(min(batch, pages) * page).reshape(-1, page)
    rng, reads, nbytes, start = np.random.default_rng(1), 0, 0, time.perf_counter()
    while (elapsed := time.perf_counter() - start) < seconds or not reads:
        stats = table.gather(rng.integers(0, pages, len(out)), out)
        reads, nbytes = reads + stats.reads, nbytes + stats.read_bytes
    return reads / elapsed, nbytes / elapsed
