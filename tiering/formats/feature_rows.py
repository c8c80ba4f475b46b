"""Read feature tables row by row: check that their files are still what was imported, map them, gather from them.

Shared by the stages that move rows (reorder, layout).
"""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.checksum import file_state, sampled_digest
from tiering.artifacts.manifest import External, verified
from tiering.errors import InputError
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph

CHUNK_BYTES = 32 * 1024 * 1024
"""Rows are moved in pieces of about this size: large sequential writes, bounded memory."""


def checked_tables(graph: Graph) -> dict[str, FeatureTable]:
    """Feature tables of a graph by node type, after a check that no referenced file changed since the import.

    Cost: at most 64 blocks of 64 KiB read per file.

    Raises
    ------
    InputError
        If a file is gone, has another size or another sampled digest, or a table has not one row per node.
    """
    _check_external(graph)
    features = graph.features
    if features is None:
        return {}
    tables = {
        node_type: features.table(node_type) for node_type in graph.node_types if node_type in features.node_types
    }
    for node_type, table in tables.items():
        if table.rows != graph.num_nodes(node_type):
            raise InputError(
                f"{table.path}: expected one feature row per node of type {node_type!r} "
                f"({graph.num_nodes(node_type)}), found {table.rows}; import the graph again"
            )
    return tables


def table_states(tables: Mapping[str, FeatureTable]) -> dict[str, str]:
    """State of every file the tables lie in (`tiering.artifacts.checksum.file_state`), for the identity of a run."""
    return {str(path): file_state(path) for path in sorted({table.path for table in tables.values()})}


def _check_external(graph: Graph) -> None:
    """Refuse changed source files before `Graph.features` would call the artifact itself damaged."""
    features = graph.parts().get("features")
    for external in () if features is None else features.manifest.external.values():
        if changed := _change(external):
            raise InputError(
                f"{external.path}: the feature file changed since the graph was imported "
                f"({changed}); put the old file back, or import the graph again"
            )


def _change(external: External) -> str:
    """How a file differs from what was recorded; empty if it does not. One with a full checksum is verified as read."""
    if not external.path.is_file():
        return "it does not exist"
    if (size := external.path.stat().st_size) != external.bytes:
        return f"expected {external.bytes} bytes, found {size}"
    if not external.whole and (found := sampled_digest(external.path)) != external.digest:
        return f"content changed: expected {external.digest}, found {found}"
    return ""


def map_rows(table: FeatureTable, *, random: bool) -> np.ndarray[Any, Any]:
    """Map a table as bytes, shape (rows, row_bytes), read-only.

    Parameters
    ----------
    random
        Rows will be read in no order: if the table fits the free memory it is read in ahead, in sequence; if not,
        read-ahead is switched off, since it would fetch many times the bytes wanted.
    """
    if table.bytes == 0:
        return np.empty((table.rows, table.row_bytes), np.uint8)
    rows = np.memmap(table.place, np.uint8, "r", table.offset, (table.rows, table.row_bytes))
    if table.verifier is not None and random:
        verified(rows, table.verifier)
    elif table.verifier is not None:
        table.verifier.read = True
        rows.verifier = table.verifier  # type: ignore[attr-defined] # whoever takes them in order tells it
    mapping: mmap.mmap | None = getattr(rows, "_mmap", None)
    if mapping is not None:
        mapping.madvise(_advice(table.bytes) if random else mmap.MADV_SEQUENTIAL)
    return rows


def _advice(nbytes: int) -> int:
    return mmap.MADV_WILLNEED if nbytes < _available_memory() // 2 else mmap.MADV_RANDOM


def _available_memory() -> int:
    """Bytes that can be used without swapping, the page cache included; 0 if the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return 0
    fields = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(fields[0][1]) * 1024 if fields else 0


def chunk_rows(row_bytes: int, multiple: int = 1) -> int:
    """Rows in a piece of about `CHUNK_BYTES`, rounded down to a multiple of `multiple`, at least one multiple."""
    return max(1, CHUNK_BYTES // row_bytes // multiple) * multiple


def take(values: np.ndarray[Any, Any], ids: np.ndarray[Any, Any], threads: int) -> np.ndarray[Any, Any]:
    """``values[ids]`` along axis 0 as a new array, in parallel for contiguous input.

    Parameters
    ----------
    values
        Shape (n, ...), any fixed-size dtype.
    ids
        int32 or int64, each in 0..n-1.
    """
    if values.size == 0 or not values.flags.c_contiguous:
        return np.ascontiguousarray(values[ids])
    out = np.empty((ids.shape[0], *values.shape[1:]), values.dtype)
    if out.size:
        native.gather_rows(_as_bytes(values), ids, _as_bytes(out), threads)
    return out


def _as_bytes(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return values.reshape(values.shape[0], -1).view(np.uint8)
