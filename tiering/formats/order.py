"""The order artifact: per node type a permutation from rank to original id and back. See ``data_specs/order.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.problems import Problem
from tiering.description import Part, Table
from tiering.formats.concentration import concentration_plot
from tiering.units import format_count


class Order(Artifact):
    """Ranks of every node type; rank 0 is the hottest."""

    kind = "order"

    @property
    def node_types(self) -> list[str]:
        """Node types, in the graph's order."""
        return list(self.manifest.body["node_types"])

    def new_to_old(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Original id of each rank: int32 or int64, shape (num_nodes,)."""
        return self._map(node_type, "new_to_old")

    def old_to_new(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Rank of each original id: int32 or int64, shape (num_nodes,)."""
        return self._map(node_type, "old_to_new")

    def score(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Score by rank: float64, shape (num_nodes,), not increasing. Types share one scale."""
        return self._map(node_type, "score")

    def _map(self, node_type: str | None, name: str) -> np.ndarray[Any, Any]:
        return self.manifest.array(f"nodes/{self._listed(node_type, self.node_types, 'order')}/{name}")

    def _body_problems(self) -> list[Problem]:
        problems = []
        for node_type in self.node_types:
            names = [f"nodes/{node_type}/{name}" for name in ("new_to_old", "old_to_new", "score")]
            missing = [name for name in names if name not in self.manifest.files]
            problems += [Problem(f"manifest.json: files.{name}", "the file is not listed", "value") for name in missing]
            if missing:
                continue
            entries = [self.manifest.files[name] for name in names]
            if len({entry.shape for entry in entries}) != 1 or len(entries[0].shape) != 1:
                problems.append(Problem(f"nodes/{node_type}", "the three files differ in length", "size"))
            ids = f"int{8 * id_bytes(entries[0].shape[0])}" if entries[0].shape else "int32"
            expected = [ids, ids, "float64"]
            if [entry.dtype for entry in entries] != expected:
                message = f"expected {', '.join(expected)}, found {', '.join(entry.dtype for entry in entries)}"
                problems.append(Problem(f"nodes/{node_type}", message, "value"))
        return problems

    def _structure_problems(self, threads: int) -> list[Problem]:
        problems = []
        for node_type in self.node_types:
            new_to_old, old_to_new = self.new_to_old(node_type), self.old_to_new(node_type)
            count = new_to_old.size
            where = f"nodes/{node_type}/new_to_old"
            outside = np.flatnonzero((new_to_old < 0) | (new_to_old >= count))
            if outside.size:
                message = f"rank {outside[0]} holds id {new_to_old[outside[0]]}, outside 0..{count - 1}"
                problems.append(Problem(where, message, "value"))
                continue
            wrong = np.flatnonzero(old_to_new[new_to_old] != np.arange(count))
            if wrong.size:
                message = f"old_to_new does not lead back at {wrong.size} ranks, first at rank {wrong[0]}"
                problems.append(Problem(where, message, "value"))
            if np.any(np.diff(self.score(node_type)) > 0):
                problems.append(Problem(f"nodes/{node_type}/score", "scores increase along the ranks", "value"))
        return problems

    def summary(self) -> dict[str, Any]:
        types = {t: {"nodes": int(self.manifest.files[f"nodes/{t}/new_to_old"].shape[0])} for t in self.node_types}
        return {**super().summary(), "node_types": types}

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        rows = [(node_type, format_count(entry["nodes"])) for node_type, entry in summary["node_types"].items()]
        plot = concentration_plot({node_type: self.score(node_type) for node_type in self.node_types})
        return [Table("Order, hottest first", ("type", "nodes"), rows), plot]
