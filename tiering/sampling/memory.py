"""Memory of sampling, by formula."""

from __future__ import annotations

from tiering.sampling.fanouts import resolve_fanouts
from tiering.sampling.graph import SampledGraph
from tiering.sampling.options import SamplingOptions

NODE_BYTES, EDGE_BYTES = 80, 16
"""Bytes of a batch being sampled: per unique node and per edge, tables half empty."""
CANDIDATE_BYTES = 64
"""``ladies``: per neighbour of a layer's nodes while the next layer is drawn."""


def batch_bytes(graph: SampledGraph, options: SamplingOptions) -> int:
    """Return the memory of one batch while it is sampled; each thread samples one.

    80 bytes per unique node and 16 per edge. A batch of B seeds has at most ``n_0 = B`` nodes and, with f the sum of
    the fanouts of a hop over all relations, ``n_{h+1} = n_h (1 + f)`` after it, never more than the graph; -1 counts as
    all edges of the graph. ``ladies``: 64 bytes for each neighbour of a layer, of lists of average length.
    """
    nodes, edges = sum(graph.num_nodes(t) for t in graph.node_types), _edges(graph)
    known, read, candidates = min(nodes, options.batch_size), 0, 0
    for hop in resolve_fanouts(graph.relations, options.fanouts):
        drawn = sum(hop)
        if options.sampler == "ladies":
            candidates = max(candidates, min(edges, known * -(-edges // max(1, nodes))))
        else:
            drawn *= known
        if min(hop) < 0:
            drawn = edges
        read += min(edges, drawn)
        known = min(nodes, known + drawn)
    return known * NODE_BYTES + read * EDGE_BYTES + candidates * CANDIDATE_BYTES


def _edges(graph: SampledGraph) -> int:
    return sum(int(graph.csc(r)[1].shape[0]) for r in graph.relations)


def sums_bytes(graph: SampledGraph, options: SamplingOptions) -> int:
    """Return the memory of a sampler in bytes: 8 per edge for the running sums of ``weighted``, else 0."""
    return 8 * _edges(graph) if options.sampler == "weighted" else 0


def counting_threads(graph: SampledGraph, options: SamplingOptions, threads: int, room: int) -> int:
    """Return as many of `threads` as have a batch each within `room` bytes, one at least."""
    return max(1, min(threads, room // max(1, batch_bytes(graph, options))))
