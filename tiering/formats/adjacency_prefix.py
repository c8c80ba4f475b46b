"""The hottest adjacency lists, which a layout's gpu tier holds beside feature rows. See ``data_specs/layout.md``.

Columns of a relation are nodes of its destination type, so after reordering the hottest lists are a prefix of
``indptr`` and ``indices``: nothing is copied on disk, two numbers per relation say what to load.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tiering.formats.graph import Graph, relation_folder
from tiering.formats.manifest import Relation, relation_key, storage_dtype
from tiering.formats.problems import Problem

INDPTR_BYTES = 8
"""Bytes of an entry of ``indptr``."""


@dataclass(frozen=True)
class AdjacencyPrefix:
    """The first columns of a relation: ``indptr[: columns + 1]`` and ``indices[:edges]``."""

    columns: int
    """Lists, those of ranks 0 to `columns` - 1."""
    edges: int
    """Their entries together: ``indptr[columns]``."""
    bytes: int
    """What they take: `INDPTR_BYTES` x (columns + 1) and the entries; 0 for no columns. Edge data are not in it."""

    @classmethod
    def of(cls, columns: int, edges: int, index_bytes: int) -> AdjacencyPrefix:
        """The prefix of `columns` lists that hold `edges` entries of `index_bytes` each."""
        return cls(columns, edges, INDPTR_BYTES * (columns + 1) + edges * index_bytes if columns else 0)

    def to_json(self) -> dict[str, int]:
        """Form in the manifest."""
        return vars(self).copy()


def prefix_problems(body: Mapping[str, Any], graph: Graph) -> list[Problem]:
    """What is wrong with the prefixes of a layout's body, by the sizes that the graph's manifest says. O(relations)."""
    found: list[Problem] = []
    keys = {relation_key(relation): relation for relation in graph.relations}
    for key, entry in body["adjacency"].items():
        where = f"manifest.json: body.adjacency.{key}"
        if key not in keys:
            found.append(Problem(where, f"the graph has no such relation, only {', '.join(keys)}", "value"))
            continue
        nodes, edges = graph.num_nodes(keys[key][2]), graph.num_edges(keys[key])
        for name, most in (("columns", nodes), ("edges", edges)):
            if entry[name] > most:
                found.append(Problem(f"{where}.{name}", f"expected at most {most}, found {entry[name]}", "value"))
        expected = AdjacencyPrefix.of(entry["columns"], entry["edges"], _index_bytes(graph, keys[key])).bytes
        if entry["bytes"] != expected:
            found.append(Problem(f"{where}.bytes", f"expected {expected}, found {entry['bytes']}", "size"))
    return found + _split_problems(body)


def _split_problems(body: Mapping[str, Any]) -> list[Problem]:
    """What is wrong with the sums that the division of the memory states."""
    split = body["split"]
    held = {
        "adjacency_bytes": sum(entry["bytes"] for entry in body["adjacency"].values()),
        "feature_bytes": sum((t["gpu"][1] - t["gpu"][0]) * t["row_bytes"] for t in body["node_types"].values()),
    }
    found = [
        Problem(f"manifest.json: body.split.{name}", f"expected {nbytes}, found {split[name]}", "size")
        for name, nbytes in held.items()
        if nbytes != split[name]
    ]
    if not found and sum(held.values()) > split["budget_bytes"]:
        message = f"expected at least {sum(held.values())}, found {split['budget_bytes']}"
        found.append(Problem("manifest.json: body.split.budget_bytes", message, "size"))
    return found


def prefix_entry_problems(body: Mapping[str, Any], graph: Graph) -> list[Problem]:
    """Prefixes whose entries are not those of the graph's ``indptr``; only for a body without `prefix_problems`."""
    found = []
    for key, entry in body["adjacency"].items():
        edges = int(graph.csc(key)[0][entry["columns"]])
        if edges != entry["edges"]:
            where = f"manifest.json: body.adjacency.{key}.edges"
            message = f"expected {edges}, which is indptr[{entry['columns']}], found {entry['edges']}"
            found.append(Problem(where, message, "value"))
    return found


def _index_bytes(graph: Graph, relation: Relation) -> int:
    entry = graph.manifest.files[f"{relation_folder(relation)}/indices"]
    return storage_dtype(entry.dtype).itemsize
