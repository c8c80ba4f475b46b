"""Small graphs with the methods that the sampler asks for."""

from __future__ import annotations

import numpy as np

Relation = tuple[str, str, str]
HOMOGENEOUS = ("node", "to", "node")


def csc_of(edges, num_dst):
    """CSC of edges (2, E), u -> v in the columns; keeps duplicates and the order inside a column."""
    indptr = np.zeros(num_dst + 1, np.int64)
    np.cumsum(np.bincount(edges[1], minlength=num_dst), out=indptr[1:])
    return indptr, edges[0][by_column(edges)].astype(np.int32)


def by_column(edges):
    """Edges in the order in which a CSC holds them."""
    return np.argsort(edges[1], kind="stable")


class ToyGraph:
    """A heterogeneous graph in memory."""

    def __init__(self, nodes, edges, keys=None, weights=None):
        """`weights` go with `edges`, one for one."""
        self._nodes = dict(nodes)
        lists = {r: np.asarray(e, np.int64).reshape(2, -1) for r, e in edges.items()}
        self._csc = {r: csc_of(e, nodes[r[2]]) for r, e in lists.items()}
        self._weights = {r: np.asarray(w)[by_column(lists[r])] for r, w in (weights or {}).items()}
        self._keys = dict(keys or {})
        self.node_types = list(nodes)
        self.relations = list(edges)

    def num_nodes(self, node_type):
        return self._nodes[node_type]

    def csc(self, relation):
        return self._csc[relation]

    def node_keys(self, node_type):
        return self._keys.get(node_type)

    def edge_data(self, relation):
        return {"weight": self._weights[relation]} if relation in self._weights else {}


def homogeneous(num_nodes, edges):
    return ToyGraph({"node": num_nodes}, {HOMOGENEOUS: edges})


def random_graph(num_nodes, num_edges, seed=0):
    """Skewed out-degrees, duplicate edges, self loops and isolated nodes included."""
    rng = np.random.default_rng(seed)
    src = (num_nodes * rng.random(num_edges) ** 3).astype(np.int64)
    dst = (num_nodes * rng.random(num_edges) ** 2).astype(np.int64)
    return homogeneous(num_nodes, np.stack([src, dst]))


def weighted_graph(num_nodes, num_edges, seed=0, dtype=np.float64):
    """`random_graph` with weights 0 to 8, a fifth of them 0."""
    plain = random_graph(num_nodes, num_edges, seed)
    rng = np.random.default_rng(seed + 1)
    plain._weights[HOMOGENEOUS] = (8 * rng.random(num_edges) * (rng.random(num_edges) > 0.2)).astype(dtype)
    return plain


def widened(graph):
    """The same graph with 64-bit indices."""
    wide = ToyGraph({t: graph.num_nodes(t) for t in graph.node_types}, {}, graph._keys)
    wide.relations, wide._weights = list(graph.relations), dict(graph._weights)
    wide._csc = {r: (indptr, indices.astype(np.int64)) for r, (indptr, indices) in graph._csc.items()}
    return wide


def relabeled(graph, new_to_old):
    """The same graph in new ids; columns keep their order, original ids are the keys."""
    image = ToyGraph({t: graph.num_nodes(t) for t in graph.node_types}, {}, new_to_old)
    image.relations = list(graph.relations)
    for relation in graph.relations:
        indptr, indices = graph.csc(relation)
        old_to_new = np.argsort(new_to_old[relation[0]])
        places = [np.arange(indptr[v], indptr[v + 1]) for v in new_to_old[relation[2]]]
        sizes = np.cumsum([0, *(len(p) for p in places)])
        flat = np.concatenate(places) if places else np.empty(0, np.int64)
        image._csc[relation] = (sizes.astype(np.int64), old_to_new[indices[flat]].astype(indices.dtype))
        if relation in graph._weights:
            image._weights[relation] = graph._weights[relation][flat]
    return image


def flat(batch):
    """Everything a batch holds, comparable with ==."""
    edges = [
        [None if a is None else a.tolist() for a in (e.src, e.dst, e.positions, e.weights)]
        for hop in batch.hops
        for e in hop.values()
    ]
    return [{t: v.tolist() for t, v in batch.nodes.items()}, batch.num_nodes, edges]
