"""Seconds of the kernels and of writing files, by formula: counts times the rates of the machine."""

from __future__ import annotations

from dataclasses import dataclass

from tiering.execution.rates import Disk, Rates


@dataclass(frozen=True)
class Kernel:
    """What one item (an edge, a node) costs; see `kernel_seconds`."""

    work: float
    """Time of instructions, where the edge of a small conversion to CSC (`Rates.edge`) takes 1."""
    streamed: float = 0.0
    """Bytes read or written front to back."""
    accesses: float = 0.0
    """Random accesses to the table that the kernel works on, as far as caches do not absorb them."""
    touched: float = 0.0
    """Bytes of memory taken for the first time."""


KERNELS: dict[str, Kernel] = {
    "csc": Kernel(0.58, 40, 0.23, 12),
    "count": Kernel(0.58, 8),
    "pass": Kernel(0.14, 8, 0.18),
    "place": Kernel(1.0, 16, 0.26),
    "scatter": Kernel(0.6, 24),
    "sort": Kernel(0.28, 20),
    "value": Kernel(0.0, 16, 1.04),
    "rank": Kernel(1.98, 40, 0.0, 12),
    "invert": Kernel(0.0, 12, 0.21, 4),
    "relabel column": Kernel(0.05, 16, 0.15, 8),
    "relabel pass": Kernel(0.02, 4),
    "relabel": Kernel(0.19, 4, 0.49),
    "relabel by parts": Kernel(1.8, 24),
    "degree": Kernel(0.41, 4, 0.04),
    "bin": Kernel(0.45, 12, 0.0, 4),
    "column": Kernel(2.0, 8),
    "sweep": Kernel(0.0, 8, 0.05),
    "sweep run": Kernel(90),
    "row": Kernel(0.33, 0, 0.5),
    "row byte": Kernel(0.02, 1),
    "append": Kernel(0.02, 1),
}
"""By name. Bytes are counted by hand from the kernels; `work` and `accesses` were fitted to R-MAT graphs of 1, 4, 16
and 48 M edges (`relabel by parts`: to maps of 64 and 128 M nodes), on one thread and by the clock of the processor
(least squares of the relative error, not negative), by ``tests/benchmarks/fit_kernels.py``. With more threads every
rate is measured with as many.
"""

SYNCS_OF_FILE, SYNCS_OF_STAGE = 3, 8
"""Small writes that are waited for: of a file (its space, its end, its line in the journal), and of an artifact."""
STAGE_SECONDS = 0.03
"""Of every stage: modules that it needs, its input opened and checked."""


def kernel_seconds(name: str, items: float, rates: Rates, entries: int = 0, entry_bytes: int = 4) -> float:
    """Seconds of a kernel for so many items, with a table of `entries` that is accessed at random."""
    kernel = KERNELS[name]
    access = kernel.accesses * rates.access(entries, entry_bytes) if kernel.accesses else 0.0
    one = kernel.work * rates.edge + kernel.streamed / rates.copy + access + kernel.touched / rates.touch
    return items * one


def read_seconds(nbytes: float, disk: Disk) -> float:
    """Seconds of reading front to back, past the page cache."""
    return nbytes / disk.read


def write_seconds(nbytes: float, disk: Disk) -> float:
    """Seconds of writing front to back, past the page cache."""
    return nbytes / disk.write


def put_seconds(nbytes: float, rates: Rates, files: int = 1) -> float:
    """Seconds of writing whole arrays as files, hashed, through the page cache; see `ArtifactWriter.put`."""
    return nbytes / rates.target.put + hash_seconds(nbytes, rates) + files * SYNCS_OF_FILE * rates.target.sync


def stage_seconds(rates: Rates) -> float:
    """Seconds that a stage takes for nothing: it begins, and commits an artifact."""
    return STAGE_SECONDS + SYNCS_OF_STAGE * rates.target.sync


def hash_seconds(nbytes: float, rates: Rates) -> float:
    """Seconds of copying bytes into a buffer and hashing them, by one thread whatever the number of threads."""
    return rates.threads * kernel_seconds("append", nbytes, rates)
