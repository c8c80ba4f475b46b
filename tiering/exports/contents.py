"""What an export consists of: the files of every node type and relation, as ``export.json`` lists them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tiering.artifacts.manifest import Relation


@dataclass(frozen=True)
class ExportedFile:
    """An array in a file of its own."""

    path: str
    """Within the export."""
    dtype: str
    """Element type: a NumPy name or ``bfloat16``."""
    stored: str
    """The same as the file has it: ``bfloat16`` is kept in integers of 16 bits."""
    shape: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return {"path": self.path, "dtype": self.dtype, "stored": self.stored, "shape": list(self.shape)}


@dataclass
class ExportedNodes:
    """The nodes of a type."""

    num_nodes: int
    num_classes: int | None
    feat: ExportedFile | None = None
    label: ExportedFile | None = None
    """int64, -1 for none."""
    new_to_old: ExportedFile | None = None
    """Original id of each node, where ids are ranks."""
    splits: dict[str, ExportedFile] = field(default_factory=dict)
    seed_labels: dict[str, ExportedFile] = field(default_factory=dict)
    """Labels of the nodes of each split, where the format wants them beside their ids."""
    data: dict[str, ExportedFile] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "num_nodes": self.num_nodes,
            "num_classes": self.num_classes,
            "feat": None if self.feat is None else self.feat.to_json(),
            "label": None if self.label is None else self.label.to_json(),
            "new_to_old": None if self.new_to_old is None else self.new_to_old.to_json(),
            "splits": {name: file.to_json() for name, file in self.splits.items()},
            "seed_labels": {name: file.to_json() for name, file in self.seed_labels.items()},
            "data": {name: file.to_json() for name, file in self.data.items()},
        }


@dataclass
class ExportedEdges:
    """The edges of a relation, column (destination) after column."""

    relation: Relation
    num_edges: int
    structure: dict[str, ExportedFile] = field(default_factory=dict)
    """``indptr`` and ``indices``, or ``edge_index``."""
    data: dict[str, ExportedFile] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        source, name, destination = self.relation
        return {
            "src": source,
            "name": name,
            "dst": destination,
            "num_edges": self.num_edges,
            **{part: file.to_json() for part, file in self.structure.items()},
            "data": {part: file.to_json() for part, file in self.data.items()},
        }


@dataclass
class Contents:
    """All of it."""

    nodes: dict[str, ExportedNodes] = field(default_factory=dict)
    edges: list[ExportedEdges] = field(default_factory=list)

    @property
    def homogeneous(self) -> bool:
        """Whether there is one node type and one relation: frameworks leave their names away then."""
        return len(self.nodes) == 1 and len(self.edges) == 1

    def to_json(self) -> dict[str, Any]:
        return {
            "homogeneous": self.homogeneous,
            "node_types": {name: nodes.to_json() for name, nodes in self.nodes.items()},
            "relations": [edges.to_json() for edges in self.edges],
        }
