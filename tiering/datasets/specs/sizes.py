"""A dataset of the sizes that a specification states, without its files: plans before a download are made from it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.datasets.options import SPLIT_RULES, ImportOptions
from tiering.datasets.specs.spec import DatasetSpec, SpecFile, relation_of
from tiering.errors import InputError
from tiering.formats.dataset import Dataset, EdgeData, FeatureStream, NodeData
from tiering.formats.features import FeatureTable


def make_sized_dataset(source: DatasetSpec, path: Path = Path(), split: Any = None) -> Dataset:
    """Return nodes and edges of the numbers published, and features of their shapes at `path`; all entries are 0.

    `split` is what the user asks for, as of the import; the specification's if ``None``.
    Arrays are maps of a temporary file that has a size and no content.
    """
    types = {file.of for file in _contents(source) if file.holds in ("features", "labels") and not file.optional}
    relations = {file.of for file in _contents(source) if file.holds == "edges" and not file.optional}
    ends = {t for folder in relations if folder for t in (relation_of(folder)[0], relation_of(folder)[2])}
    nodes = {t: NodeData(_require_count(source, t)) for t in sorted({t for t in types if t} | ends)}
    for file in _contents(source):
        if file.of in nodes and not file.optional:
            _describe(nodes[file.of], file, source, path)
    _divide(nodes, source, split or source.options.get("split"))
    edges = []
    for name in sorted(name for name in relations if name):
        src, dst = (_zeros(_require_count(source, name)) for _ in range(2))
        edges.append(EdgeData(relation_of(name), src, dst, f"{source.name}: {name}"))
    notes: dict[str, Any] = {"spec": source.name, "node_types": sorted(nodes)}
    return Dataset(source.name, source.format, nodes, edges, notes)


def _contents(source: DatasetSpec) -> list[SpecFile]:
    """Return the files, and the arrays in archives."""
    return [part for file in source.files for part in (file.members or (file,))]


def _require_count(source: DatasetSpec, name: str) -> int:
    count = source.count(name)
    if count is None:
        raise InputError(
            f"--spec {source.name}: how many {name} there are is not published, so nothing can be predicted without "
            "the files; give the path of the dataset"
        )
    return count


def _describe(nodes: NodeData, file: SpecFile, source: DatasetSpec, path: Path) -> None:
    if file.holds == "features" and file.dim and file.dtypes and file.packed:
        shape = nodes.num_nodes, file.dim, file.dtypes[0]
        nodes.features = FeatureStream(*shape, lambda start, graph: iter(()), "unpacked", read=file.bytes or 0)
    elif file.holds == "features" and file.dim and file.dtypes:
        nodes.features = FeatureTable(path / file.path, nodes.num_nodes, file.dim, file.dtypes[0])
    elif file.holds == "labels":
        nodes.labels, nodes.num_classes = _zeros(nodes.num_nodes), source.classes.get(str(file.of), 1)


def _divide(nodes: dict[str, NodeData], source: DatasetSpec, split: Any) -> None:
    """Make splits of the nodes with labels, or of the only type: by the fractions, else some in train."""
    asked = ImportOptions.parse({"split": split}).split
    fractions = SPLIT_RULES[asked] if isinstance(asked, str) else asked
    rows = {f.of: f.prefixes[:1] for f in _contents(source) if f.holds == "labels" and not f.optional}
    for name, node in nodes.items():
        labelled = min((*rows.get(name, ()), node.num_nodes))
        if fractions and (node.labels is not None or len(nodes) == 1):
            names = zip(("train", "val", "test"), fractions, strict=False)
            node.splits = {split: _zeros(round(fraction * labelled)) for split, fraction in names}
        elif node.labels is not None:
            node.splits = {"train": _zeros(max(1, labelled // 100))}


def _zeros(count: int) -> npt.NDArray[np.int64]:
    """Return a map of a temporary file that takes no room on the disk."""
    if not count:
        return np.empty(0, np.int64)
    with tempfile.TemporaryFile() as file:
        file.truncate(8 * count)
        return np.memmap(file, np.int64, "r", shape=(count,))
