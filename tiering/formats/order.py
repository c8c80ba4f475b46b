"""The order artifact: per node type a permutation from rank to original id and back. See ``data_specs/order.md``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.problems import Problem
from tiering.description import Part, Table
from tiering.formats.skew import skew_plot
from tiering.units import format_count

FIRST = "first"
"""Field of the body, and what a reader of it must know."""


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
        """Score by rank: float64, shape (num_nodes,), not increasing from rank `first` on. Types share one scale."""
        return self._map(node_type, "score")

    def first(self, node_type: str | None = None) -> int:
        """Number of ranks, from 0 on, whose nodes the user has put first, whatever their scores."""
        return int(self._first.get(self._listed(node_type, self.node_types, "order"), 0))

    @property
    def _first(self) -> dict[str, int]:
        return dict(self.manifest.body.get(FIRST, {}))

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
        for node_type, first in self._first.items() if not problems else ():
            count = self.manifest.files[f"nodes/{node_type}/score"].shape[0] if node_type in self.node_types else 0
            if first > count:
                message = f"expected at most {count} nodes of type {node_type!r}, found {first}"
                problems.append(Problem(f"manifest.json: body.{FIRST}", message, "value"))
        if self._first and FIRST not in self.manifest.requires:
            problems.append(Problem("manifest.json: requires", f"expected {FIRST!r}, found none", "value"))
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
            if np.any(np.diff(self.score(node_type)[self.first(node_type) :]) > 0):
                problems.append(Problem(f"nodes/{node_type}/score", "scores increase along the ranks", "value"))
        return problems

    def summary(self) -> dict[str, Any]:
        types = {
            t: {"nodes": int(self.manifest.files[f"nodes/{t}/new_to_old"].shape[0]), "first": self.first(t)}
            for t in self.node_types
        }
        return {**super().summary(), "node_types": types}

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        rows = [(t, format_count(e["nodes"]), format_count(e["first"])) for t, e in summary["node_types"].items()]
        plot = skew_plot({node_type: self.score(node_type) for node_type in self.node_types})
        return [Table("Order, hottest first", ("type", "nodes", "put first"), rows), plot]
