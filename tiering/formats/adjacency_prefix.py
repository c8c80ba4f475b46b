"""The hottest adjacency lists, a prefix of ``indptr`` and ``indices``, which a layout's gpu tier holds next to rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tiering.artifacts.manifest import Problem, Relation, body_problem, id_bytes, mismatch, relation_key, storage_dtype
from tiering.formats.graph import Graph, relation_folder

INDPTR_BYTES = 8  # bytes of an entry of ``indptr``
SUM_BYTES = 8  # bytes of a sum of weights; there is one for each entry of a list


@dataclass(frozen=True)
class ListBytes:
    """Bytes that one relation's lists take in the memory of a GPU that samples from them."""

    index: int  # bytes of a neighbor id
    key: int = 0  # bytes of a column's original id, which keys its random numbers
    weights: bool = False  # sums of edge weights lie there too, for the sampler ``weighted``

    @classmethod
    def of_graph(cls, graph: Graph, relation: Relation, weights: bool) -> ListBytes:
        """Return the bytes by the graph's own manifest."""
        index = storage_dtype(graph.manifest.files[f"{relation_folder(relation)}/indices"].dtype).itemsize
        key = id_bytes(graph.num_nodes(relation[2])) if "order" in graph.manifest.parts else 0
        return cls(index, key, weights)

    def prefix_bytes(self, columns: Any, edges: Any) -> Any:
        """Return the bytes of the first `columns` >= 1 lists, with `edges` entries together; numbers or arrays."""
        entry = self.index + (SUM_BYTES if self.weights else 0)
        return INDPTR_BYTES + (INDPTR_BYTES + self.key) * columns + entry * edges


@dataclass(frozen=True)
class AdjacencyPrefix:
    """The first columns of a relation: ``indptr[: columns + 1]``, ``indices[:edges]``, keys and sums of weights."""

    columns: int  # lists, those of ranks 0 to `columns` - 1
    edges: int  # their entries together: ``indptr[columns]``
    bytes: int
    weights: bool = False

    @classmethod
    def of(cls, columns: int, edges: int, size: ListBytes) -> AdjacencyPrefix:
        """Return the prefix of `columns` lists that hold `edges` entries."""
        return cls(columns, edges, int(size.prefix_bytes(columns, edges)) if columns else 0, size.weights)


def prefix_problems(body: Mapping[str, Any], graph: Graph) -> Iterator[Problem]:
    """Yield problems of the prefixes in a layout's body, by the sizes in the graph's manifest. O(relations)."""
    keys = {relation_key(relation): relation for relation in graph.relations}
    for key, entry in body["adjacency"].items():
        where = f"body.adjacency.{key}"
        if key not in keys:
            yield body_problem(where, f"the graph has no such relation, only {', '.join(keys)}")
            continue
        for name, most in (("columns", graph.num_nodes(keys[key][2])), ("edges", graph.num_edges(keys[key]))):
            if entry[name] > most:
                yield mismatch(f"{where}.{name}", f"at most {most}", entry[name])
        size = ListBytes.of_graph(graph, keys[key], entry["weights"])
        expected = AdjacencyPrefix.of(entry["columns"], entry["edges"], size).bytes
        if entry["bytes"] != expected:
            yield mismatch(f"{where}.bytes", expected, entry["bytes"], "size")
    split, tables = body["split"], [*body["node_types"].values(), *body.get("edge_tables", {}).values()]
    sums = {
        "adjacency_bytes": sum(entry["bytes"] for entry in body["adjacency"].values()),
        "feature_bytes": sum((t["gpu"][1] - t["gpu"][0]) * t["row_bytes"] for t in tables),
    }
    wrong = [name for name, nbytes in sums.items() if nbytes != split[name]]
    yield from (mismatch(f"body.split.{name}", sums[name], split[name], "size") for name in wrong)
    if not wrong and (total := sum(sums.values())) > split["budget_bytes"]:
        yield mismatch("body.split.budget_bytes", f"at least {total}", split["budget_bytes"], "size")


def prefix_entry_problems(body: Mapping[str, Any], graph: Graph) -> Iterator[Problem]:
    """Yield prefixes whose entries differ from ``indptr``; only for a body without `prefix_problems`."""
    for key, entry in body["adjacency"].items():
        edges = int(graph.csc(key)[0][entry["columns"]])
        if edges != entry["edges"]:
            expected = f"{edges}, which is indptr[{entry['columns']}]"
            yield mismatch(f"body.adjacency.{key}.edges", expected, entry["edges"])
