"""The scores artifact: predicted accesses per node, in original ids. See ``data_specs/scores.md``."""

from __future__ import annotations

from typing import Any

import numpy as np

from tiering.errors import MissingError
from tiering.formats.artifact import Artifact
from tiering.formats.problems import Problem


class Scores(Artifact):
    """One float64 vector per node type and column (``feature``; later ``adjacency``)."""

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
        """Columns present."""
        return list(self.manifest.body["columns"])

    @property
    def node_types(self) -> list[str]:
        """Node types, in the graph's order."""
        return list(self.manifest.body["node_types"])

    def values(self, node_type: str | None = None, column: str = "feature") -> np.ndarray[Any, Any]:
        """Score of every node of a type.

        Parameters
        ----------
        node_type
            May be left out where the graph has one type.
        column
            ``feature``: expected accesses of the node's feature row.

        Returns
        -------
        numpy.ndarray
            float64, shape (num_nodes,), indexed by original id, read-only; finite and not negative. Scores of all
            types are on one scale.
        """
        if node_type is None and len(self.node_types) == 1:
            node_type = self.node_types[0]
        if node_type not in self.node_types:
            raise MissingError(
                f"{self.path}: no scores for node type {node_type!r}; types: {', '.join(self.node_types)}"
            )
        if column not in self.columns:
            raise MissingError(f"{self.path}: no column {column!r}; columns: {', '.join(self.columns)}")
        return self.manifest.array(f"nodes/{node_type}/{column}")

    def _body_problems(self) -> list[Problem]:
        return [
            Problem(f"manifest.json: files.nodes/{node_type}/{column}", "the column is not listed", "value")
            for node_type in self.node_types
            for column in self.columns
            if f"nodes/{node_type}/{column}" not in self.manifest.files
        ]

    def _structure_problems(self, threads: int) -> list[Problem]:
        found = []
        for name in self.manifest.files:
            values = self.manifest.array(name)
            bad = np.flatnonzero(~(values >= 0) | np.isinf(values))
            if bad.size:
                message = f"{bad.size} values are negative or not finite, first at node {bad[0]}: {values[bad[0]]}"
                found.append(Problem(name, message, "value"))
        return found

    def summary(self) -> dict[str, Any]:
        """Method, columns and the spread of the values."""
        types = {}
        for node_type in self.node_types:
            values = self.values(node_type)
            types[node_type] = {
                "nodes": int(values.size),
                "min": float(values.min()) if values.size else None,
                "max": float(values.max()) if values.size else None,
                "zeros": int(values.size - np.count_nonzero(values)),
            }
        return {**super().summary(), "method": self.method, "columns": self.columns, "node_types": types}
