"""Memory of sampling, by formula."""

from __future__ import annotations

from collections.abc import Iterable

from tiering.sampling.fanouts import resolve_fanouts
from tiering.sampling.graph import SampledGraph
from tiering.sampling.options import SamplingOptions

NODE_BYTES, EDGE_BYTES = 80, 16
"""Of a batch being sampled: per unique node and per edge, tables half empty."""
CANDIDATE_BYTES = 64
"""``ladies``: per neighbour of a layer's nodes while the next layer is drawn."""


def batch_bytes(graph: SampledGraph, options: SamplingOptions) -> int:
    """Memory of one batch while it is sampled; each thread samples one.

    Notes
    -----
    80 bytes per unique node and 16 per edge. A batch of B seeds has at most ``n_0 = B`` nodes and, with f the sum of
    the fanouts of a hop over all relations, ``n_{h+1} = n_h (1 + f)`` after it, never more than the graph; -1 counts as
    all edges of the graph. ``ladies``: 64 bytes for each neighbour of a layer, of lists of average length.
    """
    nodes = sum(graph.num_nodes(t) for t in graph.node_types)
    edges = sum(int(graph.csc(r)[1].shape[0]) for r in graph.relations)
    found, read, candidates = min(nodes, options.batch_size), 0, 0
    for hop in resolve_fanouts(graph.relations, options.fanouts):
        drawn = _drawn(hop, found, edges, options.sampler)
        if options.sampler == "ladies":
            candidates = max(candidates, min(edges, found * -(-edges // max(1, nodes))))
        read += min(edges, drawn)
        found = min(nodes, found + drawn)
    return found * NODE_BYTES + read * EDGE_BYTES + candidates * CANDIDATE_BYTES


def _drawn(hop: Iterable[int], found: int, edges: int, sampler: str) -> int:
    fanouts = list(hop)
    if any(fanout < 0 for fanout in fanouts):
        return edges
    return sum(fanouts) if sampler == "ladies" else found * sum(fanouts)


def sums_bytes(graph: SampledGraph, options: SamplingOptions) -> int:
    """Memory of a sampler that is made once: 8 bytes per edge for the running sums of ``weighted``, else nothing."""
    if options.sampler != "weighted":
        return 0
    return 8 * sum(int(graph.csc(r)[1].shape[0]) for r in graph.relations)


def counting_threads(graph: SampledGraph, options: SamplingOptions, threads: int, room: int) -> int:
    """As many of `threads` as have a batch each within `room` bytes, one at least."""
    return max(1, min(threads, room // max(1, batch_bytes(graph, options))))
