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
    "csc": Kernel(1.0, 40, 0.0, 12),
    "count": Kernel(0.2, 8, 0.1),
    "place": Kernel(0.4, 16, 0.3),
    "scatter": Kernel(0.6, 24, 0.0, 0),
    "sort": Kernel(0.6, 20, 0.0, 0),
    "value": Kernel(0.3, 16, 0.5),
    "pass": Kernel(0.2, 8),
    "rank": Kernel(4.0, 48, 0.0, 24),
    "invert": Kernel(0.2, 4, 1.0, 4),
    "relabel": Kernel(0.3, 4, 0.3),
    "relabel pass": Kernel(0.1, 4),
    "relabel column": Kernel(0.2, 16, 1.0, 8),
    "degree": Kernel(0.3, 4, 0.3),
    "bin": Kernel(1.0, 12, 0.0, 4),
    "sweep": Kernel(0.5, 8, 0.1),
    "row": Kernel(0.5, 0, 1.0),
    "row byte": Kernel(0.0, 1),
    "append": Kernel(0.02, 1),
}
"""By name. Bytes are counted by hand from the kernels; `work` and `accesses` were fitted to R-MAT graphs of 1 to 50 M
edges with 1 and 2 threads (least squares of the relative error, not negative) by ``tests/benchmarks/fit_kernels.py``.
"""

SYNCS_OF_FILE, SYNCS_OF_STAGE = 3, 8
"""Small writes that are waited for: of a file (its space, its end, its line in the journal), and of an artifact."""


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


def put_seconds(nbytes: float, disk: Disk, files: int = 1) -> float:
    """Seconds of writing whole arrays as files through the page cache; see `ArtifactWriter.put`."""
    return nbytes / disk.put + files * SYNCS_OF_FILE * disk.sync
