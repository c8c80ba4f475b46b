"""Small graphs with the methods the sampler asks for, and a slow, obvious judge of sampled batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Relation = tuple[str, str, str]
HOMOGENEOUS: Relation = ("node", "to", "node")


def csc_of(edges: np.ndarray[Any, Any], num_dst: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """CSC of edges (2, E), u -> v in the columns; keeps duplicates and the order inside a column."""
    order = np.argsort(edges[1], kind="stable")
    indptr = np.zeros(num_dst + 1, np.int64)
    np.cumsum(np.bincount(edges[1], minlength=num_dst), out=indptr[1:])
    return indptr, edges[0][order].astype(np.int32)


class ToyGraph:
    """A heterogeneous graph in memory."""

    def __init__(
        self,
        nodes: Mapping[str, int],
        edges: Mapping[Relation, np.ndarray[Any, Any]],
        keys: Mapping[str, np.ndarray[Any, Any]] | None = None,
    ) -> None:
        self._nodes = dict(nodes)
        self._csc = {r: csc_of(np.asarray(e).reshape(2, -1), nodes[r[2]]) for r, e in edges.items()}
        self._keys = dict(keys or {})
        self.node_types = list(nodes)
        self.relations = list(edges)

    def num_nodes(self, node_type: str) -> int:
        return self._nodes[node_type]

    def csc(self, relation: Relation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return self._csc[relation]

    def node_keys(self, node_type: str) -> np.ndarray[Any, Any] | None:
        return self._keys.get(node_type)


def homogeneous(num_nodes: int, edges: np.ndarray[Any, Any]) -> ToyGraph:
    return ToyGraph({"node": num_nodes}, {HOMOGENEOUS: edges})


def random_graph(num_nodes: int, num_edges: int, seed: int = 0) -> ToyGraph:
    """Skewed out-degrees, duplicate edges, self loops and isolated nodes included."""
    rng = np.random.default_rng(seed)
    src = (num_nodes * rng.random(num_edges) ** 3).astype(np.int64)
    dst = (num_nodes * rng.random(num_edges) ** 2).astype(np.int64)
    return homogeneous(num_nodes, np.stack([src, dst]))


def relabelled(graph: ToyGraph, new_to_old: Mapping[str, np.ndarray[Any, Any]]) -> ToyGraph:
    """The same graph in new ids; columns keep their order, original ids are the keys."""
    image = ToyGraph({t: graph.num_nodes(t) for t in graph.node_types}, {}, new_to_old)
    image.relations = list(graph.relations)
    for relation in graph.relations:
        indptr, indices = graph.csc(relation)
        old_of = new_to_old[relation[2]]
        columns = [np.argsort(new_to_old[relation[0]])[indices[indptr[v] : indptr[v + 1]]] for v in old_of]
        sizes = np.cumsum([0, *(len(c) for c in columns)])
        flat = np.concatenate(columns) if columns else np.empty(0)
        image._csc[relation] = (sizes.astype(np.int64), flat.astype(np.int32))
    return image


def judge(graph: ToyGraph, batch: Any, seeds: Mapping[str, Any], fanouts: Any, frontier: str) -> None:
    """Check everything about a batch but its randomness, one edge at a time."""
    known = {t: list(dict.fromkeys(int(v) for v in seeds.get(t, ()))) for t in graph.node_types}
    before = dict.fromkeys(graph.node_types, 0)
    assert batch.num_nodes[0] == {t: len(v) for t, v in known.items()}
    assert len(batch.hops) == len(fanouts) and len(batch.num_nodes) == len(fanouts) + 1
    for hop, by_relation in enumerate(batch.hops):
        now = {t: len(v) for t, v in known.items()}
        first = before if frontier == "new" else dict.fromkeys(known, 0)
        for r, relation in enumerate(graph.relations):
            edges, fanout = by_relation[relation], fanouts[hop][r]
            indptr, indices = graph.csc(relation)
            k = 0
            for local in range(first[relation[2]], now[relation[2]]):
                node = known[relation[2]][local]
                degree = int(indptr[node + 1] - indptr[node])
                taken = degree if fanout == -1 else min(degree, fanout)
                places = edges.positions[k : k + taken]
                assert np.all(edges.dst[k : k + taken] == local)
                assert len(set(places.tolist())) == taken, "a place was drawn twice"
                assert np.all((places >= indptr[node]) & (places < indptr[node + 1]))
                if taken == degree:
                    assert places.tolist() == list(range(indptr[node], indptr[node + 1]))
                for place, src in zip(places, edges.src[k : k + taken], strict=True):
                    u = int(indices[place])
                    if u not in known[relation[0]]:
                        known[relation[0]].append(u)
                    assert known[relation[0]][src] == u
                k += taken
            assert k == len(edges) == edges.dst.size == edges.positions.size
        before = now
        assert batch.num_nodes[hop + 1] == {t: len(v) for t, v in known.items()}
    for node_type, ids in known.items():
        assert batch.nodes[node_type].dtype == np.int64
        assert batch.nodes[node_type].tolist() == ids
