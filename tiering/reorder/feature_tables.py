"""Feature tables of a reordered graph: referred to as they lie, or written again in rank order."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from tiering.artifacts.file_writer import FileWriter, appending_memory
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.progress import Progress, progress
from tiering.reorder.arrays import NodeWindows
from tiering.reorder.nodes import RankMaps
from tiering.reorder.rows import PermutedRows


def refer_features(writer: ArtifactWriter, graph: Graph, provenance: dict[str, Any]) -> None:
    """Write a features artifact that refers to the source files of `graph`, rows in original order."""
    if graph.features is None:
        return
    part = writer.part("features", "features")
    part.external.update(graph.features.manifest.referred())
    part.commit(dict(graph.features.manifest.body), provenance)


def write_features(
    writer: ArtifactWriter,
    tables: Mapping[str, FeatureTable],
    maps: Mapping[str, RankMaps],
    provenance: dict[str, Any],
    windows: NodeWindows,
) -> None:
    """Write a features artifact with the rows of every table in rank order.

    Notes
    -----
    Cost: each row is written once, in sequence; how often it is read, and the memory, says `tiering.reorder.rows`.
    Space for all tables is reserved before the first row is read. A stopped run goes on from the last finished 64 MiB.
    """
    part = writer.part("features", "features")
    entries = {}
    total = sum(table.bytes for table in tables.values())
    with ExitStack() as stack, progress(total, "features", "B", scale=True) as bar:
        files = {
            node_type: stack.enter_context(part.file(f"tables/{node_type}", table.dtype, (table.rows, table.dim)))
            for node_type, table in tables.items()
        }
        for node_type, table in tables.items():
            order, left = maps[node_type], windows.budget.without(appending_memory(table.bytes))
            with PermutedRows(
                table, order.new_to_old, order.old_to_new, budget=left, scratch=writer.path / "scratch",
                threads=windows.threads, sizes=windows.sizes.rows,
            ) as rows:  # fmt: skip
                _append(files[node_type], rows, bar)
            entries[node_type] = {
                "rows": table.rows,
                "dim": table.dim,
                "dtype": table.dtype,
                "offset": 0,
                "row_order": "rank",
                "file": f"tables/{node_type}",
            }
    part.commit({"tables": entries}, provenance)


def _append(file: FileWriter, rows: PermutedRows, bar: Progress) -> None:
    """Write the rows of a table that are not there yet."""
    row_bytes = rows.table.row_bytes
    start = file.done // row_bytes
    bar.update(start * row_bytes)
    for first, chunk in rows.chunks(start, rows.table.rows):
        file.append(chunk, first * row_bytes)
        bar.update(chunk.nbytes)
