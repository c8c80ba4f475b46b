"""COO to CSC of a relation that does not fit in memory, or arrives from disk more slowly than it is scattered.

``indptr`` and ``indices`` are made by scattering the edges into buckets; blocks of ``indices`` that this leaves out,
arrays that run along the edges, and everything where memory is too small to scatter, by windows of the result. All are
written in blocks, so a killed run goes on from the blocks that are there, even with another budget.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.artifacts.file_writer import FileWriter
from tiering.artifacts.segments import SegmentFile
from tiering.artifacts.storage import open_raw
from tiering.artifacts.streaming import bytes_on_disk
from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import StorageError
from tiering.formats.protocols import EdgeData
from tiering.graph.bucket_sort import sort_buckets
from tiering.graph.scatter import scatter
from tiering.graph.scatter_plan import ScatterPlan, plan_scatter
from tiering.graph.sizes import CscSizes
from tiering.graph.windows import Windows, count_columns, positions
from tiering.memory import Budget
from tiering.units import format_count

STREAMED_EDGES = 1 << 25
"""Edges from which a relation that would fit is scattered all the same, if it is not in the page cache."""
Indptr = npt.NDArray[np.int64]


def best_in_memory(sizes: CscSizes, edges: EdgeData, budget: Budget) -> bool:
    """Whether the relation fits, and is converted in memory.

    A large one that must be read from disk is scattered while it arrives, if all records fit, too: reading, computing
    and writing overlap.
    """
    if sizes.in_memory() > budget.left():
        return False
    if sizes.item_bytes or sizes.num_edges < STREAMED_EDGES or not bytes_on_disk([edges.dst, edges.src]):
        return True
    plan = plan_scatter(sizes, budget.left())
    return plan is None or plan.bytes_scratch > 0


def write_external(
    writer: ArtifactWriter,
    folder: str,
    edges: EdgeData,
    sizes: CscSizes,
    names: Sequence[str],
    budget: Budget,
    threads: int,
) -> None:
    """Write ``indptr``, ``indices`` and the arrays `names` that run along the edges; what is there already stays.

    Raises
    ------
    BudgetError
        If the least memory is more than the budget leaves.
    ValueError
        Naming an edge whose id is out of range.
    """
    if not writer.has(f"{folder}/indptr", f"{folder}/indices"):
        _write_adjacency(writer, folder, edges, sizes, budget, threads)
    for name in names:
        if not writer.has(f"{folder}/{name}"):
            _write_values(writer, folder, edges, sizes, name, budget, threads)


def _write_adjacency(
    writer: ArtifactWriter, folder: str, edges: EdgeData, sizes: CscSizes, budget: Budget, threads: int
) -> None:
    plan = plan_scatter(sizes, budget.left()) if sizes.num_edges else None
    with writer.file(f"{folder}/indices", f"int{8 * sizes.id_bytes}", (sizes.num_edges,)) as indices:
        if plan is not None:
            with writer.file(f"{folder}/indptr", "int64", (sizes.num_dst + 1,)) as indptr:
                _scatter(writer, folder, edges, sizes, plan, (indptr, indices), budget, threads)
        elif not writer.has(f"{folder}/indptr"):
            require_windows(folder, sizes, budget)
            writer.put(f"{folder}/indptr", count_columns(edges, sizes, budget, threads))
        if indices.missing():
            require_windows(folder, sizes, budget)
            Windows(edges, sizes, _indptr(writer, folder, sizes), budget, threads).fill(indices, sizes.id_bytes)


def _scatter(
    writer: ArtifactWriter,
    folder: str,
    edges: EdgeData,
    sizes: CscSizes,
    plan: ScatterPlan,
    files: tuple[FileWriter, FileWriter],
    budget: Budget,
    threads: int,
) -> None:
    if not files[0].missing() and not files[1].missing():
        return
    path = writer.path / folder / "scattered"
    file, may_hold_less = _scratch(path, plan, sizes.num_edges * sizes.record_bytes)
    try:
        first = _first_bucket(sizes, plan, *files)
        scattered = scatter(edges, sizes, plan, first, file, threads, may_hold_less)
        sort_buckets(scattered, path if file else None, sizes, plan, files, budget, threads)
    finally:
        if file is not None:
            file.remove()


def _scratch(path: Path, plan: ScatterPlan, whole: int) -> tuple[SegmentFile | None, bool]:
    """The scratch file, and whether it has room for all records; where the disk has not, for those not held."""
    try:
        return SegmentFile(path, whole), True
    except StorageError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        return (SegmentFile(path, plan.bytes_scratch) if plan.bytes_scratch else None), False


def _first_bucket(sizes: CscSizes, plan: ScatterPlan, indptr: FileWriter, indices: FileWriter) -> int:
    """The first bucket of which an earlier run has not written everything."""
    columns, entries = _written(indptr) // 8, _written(indices) // sizes.id_bytes
    if columns == 0:
        return 0
    known = open_raw(indptr.path, np.dtype(np.int64), (columns,))
    column = int(np.searchsorted(known, entries, "right")) - 1
    return min(column, sizes.num_dst - 1) >> plan.shift


def _written(file: FileWriter) -> int:
    """Bytes at the beginning of a file that are there."""
    missing = file.missing()
    return file.span(missing[0])[0] if missing else file.nbytes


def _write_values(
    writer: ArtifactWriter,
    folder: str,
    edges: EdgeData,
    sizes: CscSizes,
    name: str,
    budget: Budget,
    threads: int,
) -> None:
    """One array that runs along the edges."""
    require_windows(folder, sizes, budget)
    values = edges.edge_ids if name == "edge_ids" else edges.data[name]
    dtype, tail = (np.dtype(np.int64), ()) if values is None else (values.dtype, values.shape[1:])
    item = dtype.itemsize * int(np.prod(tail, dtype=np.int64))
    with writer.file(f"{folder}/{name}", dtype.name, (sizes.num_edges, *tail)) as file:
        windows = Windows(edges, sizes, _indptr(writer, folder, sizes), budget, threads)
        windows.fill(file, item, positions if values is None else values.__getitem__)


def _indptr(writer: ArtifactWriter, folder: str, sizes: CscSizes) -> Indptr:
    return open_raw(writer.path / folder / "indptr", np.dtype(np.int64), (sizes.num_dst + 1,))


def require_windows(folder: str, sizes: CscSizes, budget: Budget) -> None:
    """Raise `BudgetError` unless the conversion by windows fits."""
    what = f"{format_count(sizes.num_dst)} nodes, 8 bytes each, and two blocks of 64 MiB"
    budget.require(sizes.by_windows(), f"{folder}: {what}")
