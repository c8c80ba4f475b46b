"""Format ``reddit``: the two archives in which DGL and PyG fetch Reddit of numpy's
and scipy's.

``reddit_data.npz`` holds ``feature`` (N, dim), ``label`` (N,) and ``node_types`` (N,): 1 train, 2 val, 3 test;
``reddit_graph.npz`` is a sparse matrix in coordinates: ``row``, ``col``, ``shape``. Arrays are unpacked once,
edges into memory or temporary files, features into the graph.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.regular import entries, is_there
from tiering.datasets.archives import Member, open_npz, require_member, rows_of
from tiering.datasets.edges import require_room
from tiering.datasets.labels import make_labels
from tiering.datasets.reader import NODE, RELATION, Reader, Reading, Sign
from tiering.datasets.splits import check_splits, make_splits
from tiering.errors import InputError, MissingError
from tiering.formats.protocols import Dataset, EdgeData, NodeData

DATA, GRAPH = "reddit_data.npz", "reddit_graph.npz"
SPLITS = {"train": 1, "val": 2, "test": 3}
"""What ``node_types`` says of the nodes of a split."""


def _is_reddit(path: Path) -> bool:
    return is_there(path / DATA, "nodes") and is_there(path / GRAPH, "edges")


def _open_reddit(path: Path, reading: Reading) -> Dataset:
    if not _is_reddit(path):
        raise MissingError(f"{path}: expected {DATA} and {GRAPH}, found one of them or neither; check the path")
    reading.notes["node_types"] = [NODE]
    data, graph = open_npz(path / DATA, "nodes", reading), open_npz(path / GRAPH, "edges", reading)
    member = require_member(data, "label", path / DATA)
    values = member.column("iu", "labels as whole numbers", reading)
    count = int(values.size)
    nodes = NodeData(count, rows_of(require_member(data, "feature", path / DATA), count))
    nodes.labels, nodes.num_classes = make_labels(values, member.where, count, reading)
    nodes.splits = _splits(data, count, nodes.labels, path, reading)
    src, dst = (_ends(graph, name, count, path, reading) for name in ("row", "col"))
    edges = EdgeData(RELATION, src, dst, str(path / GRAPH))
    require_room(NODE, count, f"{member.where}: says that there are {count} nodes; check it", [edges], reading)
    reading.ignored(entry for entry in entries(path) if not entry.name.startswith("."))
    return reading.dataset(path.name, {NODE: nodes}, [edges])


def _ends(graph: dict[str, Member], name: str, count: int, path: Path, reading: Reading) -> npt.NDArray[Any]:
    member = require_member(graph, name, path / GRAPH)
    ids = member.column("iu", "ids of nodes", reading)
    if ids.size and not 0 <= int(ids.min()) <= int(ids.max()) < count:
        raise InputError(
            f"{member.where}: expected ids in 0..{count - 1}, found {int(ids.min())} to {int(ids.max())}; get it again"
        )
    return ids if ids.dtype.str in ("<i4", "<i8") else ids.astype(np.int64)


def _splits(
    data: dict[str, Member], count: int, labels: npt.NDArray[np.int64], path: Path, reading: Reading
) -> dict[str, npt.NDArray[np.int64]]:
    splits = make_splits(labels, count, reading, str(path))
    if not splits and "node_types" in data:
        kinds = data["node_types"].column("iu", "1, 2 or 3 for each node", reading)
        if kinds.size != count:
            raise InputError(f"{data['node_types'].where}: expected {count} numbers, found {kinds.size}; get it again")
        splits = {name: np.flatnonzero(kinds == kind) for name, kind in SPLITS.items()}
        splits = {name: ids for name, ids in splits.items() if ids.size}
    check_splits(splits, labels, count, NODE, reading)
    return splits


READER = Reader(
    _open_reddit, takes=frozenset(), directory=Sign(f"{DATA} and {GRAPH} (reddit)", lambda path: _is_reddit(path))
)
