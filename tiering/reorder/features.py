"""Feature tables of a reordered graph: referred to as they lie, or written again in rank order."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import numpy as np

from tiering import native
from tiering.formats.artifact import ArtifactWriter, StreamedFile
from tiering.formats.feature_rows import chunk_rows, map_rows
from tiering.formats.features import FeatureTable
from tiering.formats.graph import Graph
from tiering.progress import Progress, progress


def refer_features(writer: ArtifactWriter, graph: Graph, provenance: dict[str, Any]) -> None:
    """Write a features artifact that refers to the source files of `graph`, rows in original order."""
    if graph.features is None:
        return
    part = writer.part("features", "features")
    part.external.update(graph.features.manifest.external)
    part.commit(dict(graph.features.manifest.body), provenance)


def write_features(
    writer: ArtifactWriter,
    tables: Mapping[str, FeatureTable],
    new_to_old: Mapping[str, np.ndarray[Any, Any]],
    provenance: dict[str, Any],
    threads: int,
) -> None:
    """Write a features artifact with the rows of every table in rank order.

    Notes
    -----
    Cost: each row is read once (at random) and written once (in sequence); memory two chunks. Space for all tables is
    reserved before the first row is read.
    """
    part = writer.part("features", "features")
    entries = {}
    total = sum(table.bytes for table in tables.values())
    with ExitStack() as stack, progress(total, "features", "B", scale=True) as bar:
        files = {
            node_type: stack.enter_context(part.stream(f"tables/{node_type}", table.dtype, (table.rows, table.dim)))
            for node_type, table in tables.items()
        }
        for node_type, table in tables.items():
            _write_table(files[node_type], table, new_to_old[node_type], threads, bar)
            entries[node_type] = {
                "rows": table.rows,
                "dim": table.dim,
                "dtype": table.dtype,
                "offset": 0,
                "row_order": "rank",
                "file": f"tables/{node_type}",
            }
    part.commit({"tables": entries}, provenance)


def _write_table(
    file: StreamedFile, table: FeatureTable, order: np.ndarray[Any, Any], threads: int, bar: Progress
) -> None:
    rows = map_rows(table, random=True)
    step = chunk_rows(table.row_bytes)
    buffer = np.empty((min(step, table.rows), table.row_bytes), np.uint8)
    for begin in range(0, table.rows, step):
        ids = order[begin : begin + step]
        chunk = buffer[: ids.shape[0]]
        native.gather_rows(rows, ids, chunk, threads)
        file.write(chunk)
        bar.update(chunk.nbytes)
