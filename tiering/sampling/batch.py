"""Results of sampling: batches, and counts of what they read."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tiering.sampling.graph import Relation, SampledGraph

IdArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SampledEdges:
    """Edges sampled at one hop of one relation, grouped by destination in frontier order."""

    src: npt.NDArray[np.int32]
    """Shape (edges,): place of the source in ``nodes[source type]``."""
    dst: npt.NDArray[np.int32]
    """Shape (edges,): place of the destination in ``nodes[destination type]``; ascending."""
    positions: IdArray | None = None
    """Shape (edges,): place of the edge in the relation's ``indices``, on request."""
    weights: npt.NDArray[np.float32] | None = None
    """Shape (edges,): weights that the sampler gives its edges; ``None`` where it gives none."""

    def __len__(self) -> int:
        return int(self.src.size)


@dataclass(frozen=True)
class SampledBatch:
    """One mini-batch: unique nodes in order of discovery, and edges by hop in local ids."""

    nodes: dict[str, IdArray]
    """Per node type: ids in order of discovery, seeds first; unique. These are the rows that training reads."""
    num_nodes: list[dict[str, int]]
    """``num_nodes[h][t]``: nodes of type t known after h hops; entry 0 counts the seeds. hops + 1 entries."""
    hops: list[dict[Relation, SampledEdges]] = field(repr=False)
    """``hops[h][relation]``: edges drawn at hop h (0 = the seeds' own neighbours)."""
    epoch: int
    batch: int  # number of the batch in its epoch

    @property
    def seeds(self) -> dict[str, IdArray]:
        """Unique seeds per node type, in the order given: the first nodes of each list."""
        return {t: ids[: self.num_nodes[0][t]] for t, ids in self.nodes.items()}

    @property
    def num_edges(self) -> int:
        """Edges drawn in all hops and relations."""
        return sum(len(edges) for hop in self.hops for edges in hop.values())

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        edges = [e for hop in self.hops for e in hop.values()]
        weights = sum(a.nbytes for e in edges for a in (e.weights, e.positions) if a is not None)
        nodes = sum(ids.nbytes for ids in self.nodes.values())
        return nodes + sum(e.src.nbytes + e.dst.nbytes for e in edges) + weights


@dataclass
class AccessCounts:
    """How often each node's feature row and each adjacency list was read."""

    features: dict[str, IdArray]
    """Per node type, int64, shape (num_nodes,): +1 for every batch that contains the node."""
    adjacency: dict[Relation, IdArray]
    """Per relation, int64, shape (nodes of the destination type,): +1 every time the node's list is read."""

    @classmethod
    def zeros(cls, graph: SampledGraph) -> AccessCounts:
        """Return the counters of a graph, all 0."""
        return cls(
            {t: np.zeros(graph.num_nodes(t), np.int64) for t in graph.node_types},
            {r: np.zeros(graph.num_nodes(r[2]), np.int64) for r in graph.relations},
        )

    @property
    def total(self) -> int:
        """Feature accesses over all types."""
        return sum(int(counts.sum()) for counts in self.features.values())
