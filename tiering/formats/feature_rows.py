"""Read feature tables row by row: check that their files are still what was imported, map them, gather from them."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.checksum import file_state, sampled_digest
from tiering.artifacts.manifest import verified
from tiering.errors import InputError
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.memory import available_memory

CHUNK_BYTES = 32 * 1024 * 1024  # bytes of the pieces in which rows are moved: large sequential writes, bounded memory


def checked_tables(graph: Graph) -> dict[str, FeatureTable]:
    """Return the feature tables of a graph by node type; refuse referenced files that changed since the import."""
    _check_external(graph)
    listed = {node_type: graph.feature_table(node_type) for node_type in graph.node_types}
    tables = {node_type: table for node_type, table in listed.items() if table is not None}
    for node_type, table in tables.items():
        if table.rows != graph.num_nodes(node_type):
            raise InputError(
                f"{table.path}: expected one feature row per node of type {node_type!r} "
                f"({graph.num_nodes(node_type)}), found {table.rows}; import the graph again"
            )
    return tables


def table_states(tables: Mapping[str, Any]) -> dict[str, str]:
    """Return the state of the tables' files (`tiering.artifacts.checksum.file_state`), for the identity of a run."""
    return {str(path): file_state(path) for path in sorted({table.path for table in tables.values()})}


def _check_external(graph: Graph) -> None:
    """Refuse changed source files before `Graph.features` would call the artifact itself damaged."""
    features = graph.parts().get("features")
    for external in () if features is None else features.manifest.external.values():
        path, changed = external.path, ""
        if not path.is_file():
            changed = "it does not exist"
        elif (size := path.stat().st_size) != external.bytes:
            changed = f"expected {external.bytes} bytes, found {size}"
        elif not external.whole and (found := sampled_digest(path)) != external.digest:
            changed = f"content changed: expected {external.digest}, found {found}"
        if changed:  # full checksums are verified as rows are read
            raise InputError(
                f"{path}: the feature file changed since the graph was imported ({changed}); restore the old file, "
                "or import the graph again"
            )


def map_rows(table: FeatureTable, *, random: bool) -> np.ndarray[Any, Any]:
    """Map a table as bytes, (rows, row_bytes), read-only; rows to be read at `random` are read ahead if all fit."""
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
        cached = random and table.bytes < available_memory() // 2
        uncached = mmap.MADV_RANDOM if random else mmap.MADV_SEQUENTIAL
        mapping.madvise(mmap.MADV_WILLNEED if cached else uncached)
    return rows


def take(values: np.ndarray[Any, Any], ids: np.ndarray[Any, Any], threads: int) -> np.ndarray[Any, Any]:
    """Return ``values[ids]`` along axis 0 as a new array, in parallel for contiguous input; ids are in range."""
    if values.size == 0 or not values.flags.c_contiguous:
        return np.ascontiguousarray(values[ids])
    out = np.empty((ids.shape[0], *values.shape[1:]), values.dtype)
    if out.size:
        rows, gathered = (array.reshape(array.shape[0], -1).view(np.uint8) for array in (values, out))
        native.gather_rows(rows, ids, gathered, threads)
    return out
