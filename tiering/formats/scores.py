"""The scores artifact: predicted accesses per node, in original ids. See ``data_specs/scores.md``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from tiering.artifacts.artifact import Artifact
from tiering.artifacts.manifest import Problem, Relation, body_problem, relation_key
from tiering.errors import MissingError
from tiering.formats.graph import find_relation, relation_folder
from tiering.text.description import Part, Table
from tiering.text.units import format_count

GIVEN = "given"  # method of scores that the user has computed
ADJACENCY = "adjacency"  # name of the column per relation


class Scores(Artifact):
    """Accesses per epoch: of feature rows, one vector per node type; of adjacency lists, one per relation."""

    kind = "scores"

    @property
    def method(self) -> str:
        """Name of the predictor, such as ``wrpr``."""
        return str(self.manifest.body["method"])

    @property
    def graph_digest(self) -> str:
        """Digest of the graph the scores were computed on."""
        return str(self.manifest.body["graph_digest"])

    @property
    def columns(self) -> list[str]:
        """Columns present: ``feature``, and ``adjacency`` where the method predicts it."""
        return [*self.manifest.body["columns"], *([ADJACENCY] if self.relations else [])]

    @property
    def relations(self) -> list[Relation]:
        """Relations with a column ``adjacency``, by key; empty if the method predicts none."""
        names = (
            re.fullmatch(rf"relations/([^/]+)__([^/]+)__([^/]+)/{ADJACENCY}", name)
            for name in sorted(self.manifest.files)
        )
        return [(name[1], name[2], name[3]) for name in names if name]

    def train_nodes(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the training nodes that no split of the graph has, by type: original ids, int64."""
        names = {node_type: f"nodes/{node_type}/split-train" for node_type in self.node_types}
        return {t: self.manifest.array(name) for t, name in names.items() if name in self.manifest.files}

    def counted_epochs(self, seed: int) -> range | None:
        """Return the epochs of the run with `seed` whose accesses the scores have counted, if they have any."""
        provenance = self.manifest.provenance
        options = provenance.get("options", {})
        first, epochs = options.get("first_epoch"), options.get("epochs")
        if provenance.get("seed") == seed and isinstance(first, int) and isinstance(epochs, int):
            return range(first, first + epochs)
        return None

    def values(self, node_type: str | None = None, column: str = "feature") -> np.ndarray[Any, Any]:
        """Return the score of every node of a type, by default of the only one: expected accesses of its feature row.

        float64, shape (num_nodes,), by original id, read-only, finite, not negative; all types are on one scale.
        """
        node_type = self._resolve_type(node_type)
        if column not in self.manifest.body["columns"]:
            known = ", ".join(self.manifest.body["columns"])
            raise MissingError(f"{self.path}: no column {column!r} per node type; columns: {known}")
        return self.manifest.array(f"nodes/{node_type}/{column}")

    def adjacency(self, relation: Relation | str | None = None) -> np.ndarray[Any, Any]:
        """Return the expected reads per epoch of each node's list of in-neighbors in a relation (`Graph.relation`).

        float64, shape (nodes of the destination type,), by original id, read-only.
        """
        known = self.relations
        if not known:
            raise MissingError(
                f"{self.path}: {self.method} predicts no reads of adjacency; score with presample, vip or hybrid"
            )
        return self.manifest.array(f"{relation_folder(find_relation(self.path, known, relation))}/{ADJACENCY}")

    def _body_problems(self) -> list[Problem]:
        files = self.manifest.files
        problems = [
            body_problem(f"files.nodes/{node_type}/{column}", "the column is not listed")
            for node_type in self.node_types
            for column in self.manifest.body["columns"]
            if f"nodes/{node_type}/{column}" not in files
        ]
        for relation in self.relations if not problems else []:
            where = f"{relation_folder(relation)}/{ADJACENCY}"
            if relation[0] not in self.node_types or relation[2] not in self.node_types:
                problems.append(body_problem(f"files.{where}", "names an unknown node type"))
            elif files[where].shape != (expected := files[f"nodes/{relation[2]}/feature"].shape):
                problems.append(Problem(where, f"expected shape {expected}, found {files[where].shape}", "size"))
        return problems

    def _structure_problems(self) -> Iterator[Problem]:
        for name in self.manifest.files:
            values = self.manifest.array(name)
            bad = np.flatnonzero(~(values >= 0) | np.isinf(values))
            if bad.size:
                message = f"{bad.size} values are negative or not finite, first at node {bad[0]}: {values[bad[0]]}"
                yield Problem(name, message, "value")

    def _summarize_content(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "columns": self.columns,
            "node_types": {node_type: _spread(self.values(node_type)) for node_type in self.node_types},
            "relations": {relation_key(relation): _spread(self.adjacency(relation)) for relation in self.relations},
        }

    def _describe_content(self, summary: Mapping[str, Any]) -> list[Part]:
        parts: list[Part] = [_spread_table(f"Scores by {summary['method']}", "type", summary["node_types"])]
        if summary["relations"]:
            parts.append(_spread_table("Reads of adjacency per epoch", "relation", summary["relations"]))
        return parts


def _spread(values: np.ndarray[Any, Any]) -> dict[str, Any]:
    return {
        "nodes": int(values.size),
        "min": float(values.min()) if values.size else None,
        "max": float(values.max()) if values.size else None,
        "sum": float(values.sum()),
        "zeros": int(values.size - np.count_nonzero(values)),
    }


def _spread_table(title: str, what: str, entries: Mapping[str, Any]) -> Table:
    rows = [
        (name, format_count(e["nodes"]), *(_number(e[key]) for key in ("sum", "min", "max")), format_count(e["zeros"]))
        for name, e in entries.items()
    ]
    return Table(title, (what, "nodes", "sum", "minimum", "maximum", "zeros"), rows)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4g}"
