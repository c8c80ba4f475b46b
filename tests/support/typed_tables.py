"""Tables of edges and nodes in small files, and the edges of a graph by the ids of its source."""

from __future__ import annotations

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pa_parquet

RATES = ("user", "rates", "movie")


def write(path: Path, columns: str, rows: list[tuple[Any, ...]], change: Any = lambda name, value: value) -> Path:
    """Write rows as the suffix says; `change` converts the values of a column."""
    names = columns.split(",")
    values = {name: [change(name, row[k]) for row in rows] for k, name in enumerate(names)}
    if path.suffix == ".parquet":
        pa_parquet.write_table(pa.table(values), path, row_group_size=2)
        return path
    text = io.StringIO()
    csv.writer(text, delimiter="\t" if ".tsv" in path.name else ",").writerows(
        [names, *zip(*values.values(), strict=True)]
    )
    path.write_bytes(gzip.compress(text.getvalue().encode()) if path.suffix == ".gz" else text.getvalue().encode())
    return path


def edges_of(graph: Any, relation: tuple[str, str, str]) -> list[tuple[Any, ...]]:
    """Return edges by ids of the source, with edge data, sorted."""

    def ids(node_type: str) -> Any:
        if (names := graph.names(node_type)) is not None:
            return names.of(range(len(names)))
        file = f"nodes/{node_type}/original_id"
        has = file in graph.manifest.files
        return graph.manifest.array(file).tolist() if has else list(range(graph.num_nodes(node_type)))

    sources, targets = ids(relation[0]), ids(relation[2])
    indptr, indices = graph.csc(relation)
    folder = f"relations/{'__'.join(relation)}"
    entry = next(e for e in graph.manifest.body["relations"] if (e["src"], e["name"], e["dst"]) == relation)
    data = [graph.manifest.array(f"{folder}/{name}").tolist() for name in sorted(entry["edge_data"])]
    pairs = [(sources[u], targets[v]) for v in range(len(targets)) for u in indices[indptr[v] : indptr[v + 1]]]
    return sorted((*pair, *values) for pair, *values in zip(pairs, *data, strict=True))
