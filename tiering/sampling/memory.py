"""Memory of sampling, and bytes that one read of an adjacency list touches, by formula."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tiering.sampling.graph import SampledGraph, resolve_fanouts
from tiering.sampling.options import SamplingOptions

NODE_BYTES, EDGE_BYTES = 80, 16  # bytes of a batch being sampled: per unique node and per edge, tables half empty
DISJOINT_BYTES, MIRROR_BYTES = 40, 64  # in addition: per node of a disjoint batch, per edge of a bidirectional one
CANDIDATE_BYTES = 64  # ``ladies``: per neighbor of a layer's nodes while the next layer is sampled
INDPTR_BYTES = 16  # begin and end of a list
SUMS_PER_SECTOR = 4  # sums of weights, 8 bytes each, in the at least 32 bytes that a GPU reads


def batch_bounds(graph: SampledGraph, options: SamplingOptions) -> tuple[int, int, int]:
    """Return bounds of a batch: the nodes that sample in its last hop, all its nodes, and all its edges.

    A batch of B seeds has at most ``n_0 = B`` nodes and, with f the sum of the fanouts of a hop over all relations,
    ``n_{h+1} = n_h (1 + f)`` after it, ``ladies`` ``n_h + f``, never more than the graph; -1 counts as all its edges.
    A disjoint batch has as much for each of its B instances; an induced one may read all edges.
    """
    nodes, edges = sum(graph.num_nodes(t) for t in graph.node_types), _edges(graph)
    instances = options.batch_size if options.disjoint else 1
    asking, known, read = 0, min(nodes, options.batch_size // instances), 0
    for hop in resolve_fanouts(graph.relations, options.fanouts):
        drawn = edges if min(hop) < 0 else sum(hop) * (1 if options.sampler == "ladies" else known)
        asking, known, read = known, min(nodes, known + drawn), read + min(edges, drawn)
    read = edges if options.subgraph_type == "induced" else read
    return asking * instances, known * instances, read * instances


def batch_bytes(graph: SampledGraph, options: SamplingOptions) -> int:
    """Return the bytes of a batch being sampled: 80 per node, 16 per edge, for ``ladies`` 64 per candidate.

    A node of a disjoint batch needs 40 more, for its instance and its row; a ``bidirectional`` edge 64, to be sorted.
    """
    asking, known, read = batch_bounds(graph, options)
    per_node = NODE_BYTES + DISJOINT_BYTES * options.disjoint
    per_edge = EDGE_BYTES + MIRROR_BYTES * (options.subgraph_type == "bidirectional")
    nbytes, edges = known * per_node + read * per_edge, _edges(graph)
    if options.sampler == "ladies":
        average = -(-edges // max(1, sum(graph.num_nodes(t) for t in graph.node_types)))
        nbytes += CANDIDATE_BYTES * min(edges, asking * average)
    return nbytes


def _edges(graph: SampledGraph) -> int:
    return sum(int(graph.csc(r)[1].shape[0]) for r in graph.relations)


def sums_bytes(graph: SampledGraph, options: SamplingOptions) -> int:
    """Return the memory of a sampler in bytes: 8 per edge for the running sums of ``weighted``, else 0."""
    return 8 * _edges(graph) if options.sampler == "weighted" else 0


def list_read_entries(degrees: npt.NDArray[np.int64], sampler: str, fanouts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return entries that a read of each list samples, from the lists' lengths and the relation's fanouts, hop by hop.

    ``min(fanout, degree)``, all for fanout -1 and for ``ladies``, one for each step of a ``pinsage`` walk. Where hops
    have different fanouts, the mean over those that read the relation at all.
    """
    if sampler == "ladies":
        return degrees.astype(np.float64)
    if sampler == "pinsage":
        return np.minimum(degrees, 1).astype(np.float64)
    entries, reading = np.zeros(degrees.size), [fanout for fanout in fanouts if fanout]
    for fanout in reading:
        entries += degrees if fanout < 0 else np.minimum(degrees, fanout)
    return entries / max(1, len(reading))


def list_read_places(degrees: npt.NDArray[np.int64], sampler: str, fanouts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the number of separate positions that a read of each list looks at: entries sampled, and sums.

    Only ``weighted`` reads sums: all of a list no longer than the fanout, else ``ceil(log2(degree + 1))`` per sample.
    """
    entries = list_read_entries(degrees, sampler, fanouts)
    if sampler != "weighted":
        return entries
    search, reading = np.ceil(np.log2(degrees + 1.0)), [fanout for fanout in fanouts if fanout]
    for fanout in reading:
        whole = degrees <= fanout if fanout > 0 else True
        entries += np.where(whole, degrees / SUMS_PER_SECTOR, fanout * search) / len(reading)
    return entries


def list_read_bytes(
    degrees: npt.NDArray[np.int64], index_bytes: int, sampler: str, fanouts: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return the bytes that a read of each list touches: begin and end, and the entries sampled, without edge data."""
    return INDPTR_BYTES + index_bytes * list_read_entries(degrees, sampler, fanouts)
