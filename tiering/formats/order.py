"""The order artifact: per node type a permutation from rank to original id and back. See ``data_specs/order.md``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import Problem, array_problems, id_bytes, mismatch
from tiering.text.description import Part, Table
from tiering.text.units import format_count

FIRST = "first"  # field of the body, and what a reader of it must know


class Order(Artifact):
    """Ranks of every node type; rank 0 is the hottest."""

    kind = "order"

    def new_to_old(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Return the original id of each rank: int32 or int64, shape (num_nodes,)."""
        return self._map(node_type, "new_to_old")

    def old_to_new(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Return the rank of each original id: int32 or int64, shape (num_nodes,)."""
        return self._map(node_type, "old_to_new")

    def score(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Return scores by rank: float64, shape (num_nodes,), not increasing from rank `first` on, on one scale."""
        return self._map(node_type, "score")

    def first(self, node_type: str | None = None) -> int:
        """Return the number of pinned nodes: ranks, from 0 on, that the user has put first whatever their scores."""
        return int(self.manifest.body.get(FIRST, {}).get(self._resolve_type(node_type), 0))

    def _map(self, node_type: str | None, name: str) -> np.ndarray[Any, Any]:
        return self.manifest.array(f"nodes/{self._resolve_type(node_type)}/{name}")

    def _body_problems(self) -> list[Problem]:
        problems, pinned = [], self.manifest.body.get(FIRST, {})
        for node_type in self.node_types:
            folder = f"nodes/{node_type}"
            shape = self.manifest.files[f"{folder}/score"].shape if f"{folder}/score" in self.manifest.files else ()
            ids = f"int{8 * id_bytes(shape[0])}" if shape else "int32"
            for name, dtype in (("new_to_old", ids), ("old_to_new", ids), ("score", "float64")):
                problems += array_problems(self.manifest, f"{folder}/{name}", shape[:1] or None, [dtype])
        for node_type, first in pinned.items() if not problems else ():
            count = self.manifest.files[f"nodes/{node_type}/score"].shape[0] if node_type in self.node_types else 0
            if first > count:
                problems.append(mismatch(f"body.{FIRST}", f"at most {count} nodes of type {node_type!r}", first))
        if pinned and FIRST not in self.manifest.requires:
            problems.append(mismatch("requires", repr(FIRST), "none"))
        return problems

    def _structure_problems(self) -> Iterator[Problem]:
        for node_type in self.node_types:
            new_to_old, old_to_new = self.new_to_old(node_type), self.old_to_new(node_type)
            count, where = new_to_old.size, f"nodes/{node_type}/new_to_old"
            outside = np.flatnonzero((new_to_old < 0) | (new_to_old >= count))
            if outside.size:
                message = f"rank {outside[0]} holds id {new_to_old[outside[0]]}, outside 0..{count - 1}"
                yield Problem(where, message, "value")
                continue
            wrong = np.flatnonzero(old_to_new[new_to_old] != np.arange(count))
            if wrong.size:
                message = f"old_to_new does not lead back at {wrong.size} ranks, first at rank {wrong[0]}"
                yield Problem(where, message, "value")
            if np.any(np.diff(self.score(node_type)[self.first(node_type) :]) > 0):
                yield Problem(f"nodes/{node_type}/score", "scores increase along the ranks", "value")

    def _summarize_content(self) -> dict[str, Any]:
        types = {t: {"nodes": self.new_to_old(t).size, "first": self.first(t)} for t in self.node_types}
        return {"node_types": types}

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        rows = [(t, format_count(e["nodes"]), format_count(e["first"])) for t, e in summary["node_types"].items()]
        return [Table("Order, hottest first", ("type", "nodes", "pinned nodes"), rows)]
