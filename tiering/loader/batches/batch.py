"""Mini-batches, ready for plain torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import Relation, relation_key
from tiering.errors import MissingError
from tiering.loader.batches.tensors import concatenate, tensors_in
from tiering.loader.options import FeatureSource
from tiering.loader.targets import Plan
from tiering.sampling import FrontierRule, LinkPlan, SampledBatch

if TYPE_CHECKING:
    import torch


EdgeRows: TypeAlias = Mapping[Relation, FeatureSource]  # sources of edges' features; rows by position


@dataclass(frozen=True)
class Block:
    """The edges of one message-passing layer. Its destinations are the first of its sources, type by type."""

    edge_index: dict[Relation, torch.Tensor] = field(repr=False)
    """Edges by relation, int64, shape (2, edges): sources above destinations, as positions in ``batch.nodes[type]``."""
    num_src: dict[str, int]
    """Nodes by type whose input the layer reads: a prefix of ``batch.nodes[type]``."""
    num_dst: dict[str, int]
    """Nodes by type whose output the layer makes: a shorter prefix."""
    edge_weight: dict[Relation, torch.Tensor] = field(default_factory=dict, repr=False)
    """Weights by relation, float32, shape (edges,): visits of ``pinsage``, importance of ``ladies`` (they sum to 1 per
    destination); empty for samplers without weights."""
    positions: dict[Relation, torch.Tensor] = field(default_factory=dict, repr=False)
    """Positions by relation, int64, shape (edges,); see `Batch.positions`; empty unless requested."""
    edge_features: dict[Relation, torch.Tensor] = field(default_factory=dict, repr=False)
    """Features by relation, shape (edges, dim); see `Batch.edge_features`; empty unless requested."""

    @property
    def num_edges(self) -> int:
        """Edges of all relations."""
        return sum(int(edges.shape[1]) for edges in self.edge_index.values())

    def to_scipy(self, relation: Relation | None = None) -> Any:
        """Return a relation's edges as a ``scipy.sparse.csc_array`` of shape (sources, destinations), in host memory.

        Entry (i, j) is the edge from source i to destination j: its weight, by default 1, float32; several edges of
        two nodes add up. The relation can be omitted if the block has one.
        """
        from scipy.sparse import csc_array

        if relation is None and len(self.edge_index) == 1:
            relation = next(iter(self.edge_index))
        if relation not in self.edge_index:
            known = ", ".join(map(relation_key, self.edge_index)) or "none"
            raise MissingError(f"to_scipy: expected one of the block's relations ({known}), found {relation!r}")
        rows, columns = self.edge_index[relation].cpu().numpy()
        weights = self.edge_weight.get(relation)
        data = np.ones(rows.size, np.float32) if weights is None else weights.cpu().numpy()
        return csc_array((data, (rows, columns)), shape=(self.num_src[relation[0]], self.num_dst[relation[2]]))


@dataclass(frozen=True)
class BatchLinks:
    """The links of a batch, and negative pairs, as positions among the first nodes of their types."""

    src: torch.Tensor
    """int64: positions in ``batch.nodes[source type]``, of the links, then of the negative pairs."""
    dst: torch.Tensor
    """int64: positions in ``batch.nodes[destination type]`` likewise; with triplets of the links alone."""
    count: int
    """Number of links; negative pairs follow them."""
    dst_negative: torch.Tensor | None = None
    """Triplets: int64, shape (links, amount): other destinations for the source of each link."""
    time: torch.Tensor | None = None
    """With `time`: times of the links, then of the negative pairs; with triplets of the links alone."""


@dataclass(frozen=True)
class Batch:
    """Sampled nodes and edges, features of the nodes, labels of the seeds; all in host memory, or all on one GPU."""

    epoch: int
    """Epoch the batch belongs to."""
    index: int
    """Number of the batch in its epoch."""
    seed_type: str
    """Node type of the seeds."""
    nodes: dict[str, torch.Tensor]
    """Ids (ranks) by node type, int64, unique (in a disjoint batch within each instance): seeds first, then by hop of
    discovery."""
    num_nodes: list[dict[str, int]]
    """``num_nodes[h][type]``: nodes known after h hops; hops + 1 entries."""
    hops: list[dict[Relation, torch.Tensor]] = field(repr=False)
    """``hops[h][relation]``: edges sampled at hop h, int64, shape (2, edges): row 0 sources, row 1 destinations, local
    ids. Each row is contiguous, the two together need not be."""
    features: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    """Features by node type: row i belongs to ``nodes[type][i]``."""
    y: torch.Tensor | None = field(default=None, repr=False)
    """Labels of the seeds: classes, int64, -1 = none, or numbers as the source had them; ``None`` without labels."""
    frontier: FrontierRule = "all"
    """Frontier of the sampler; `blocks` depends on it."""
    weights: list[dict[Relation, torch.Tensor]] = field(default_factory=list, repr=False)
    """``weights[h][relation]``: weights of the edges in ``hops[h][relation]``, float32, shape (edges,); the mappings
    are empty for samplers without weights. See `Block.edge_weight`."""
    positions: list[dict[Relation, torch.Tensor]] = field(default_factory=list, repr=False)
    """``positions[h][relation]``: positions of the edges of ``hops[h][relation]`` in the relation's ``indices``, int64,
    shape (edges,); empty unless requested (``edge_positions``)."""
    edge_features: list[dict[Relation, torch.Tensor]] = field(default_factory=list, repr=False)
    """``edge_features[h][relation]``: shape (edges, dim), row i belongs to edge i of ``hops[h][relation]``; relations
    without features are absent; empty unless requested (``edge_features``)."""
    input_id: torch.Tensor | None = field(default=None, repr=False)
    """Position of each seed in its split, or in the ids given, int64; in link batches of each link."""
    links: BatchLinks | None = field(default=None, repr=False)
    """The links of a link batch, and negative pairs."""
    batch: dict[str, torch.Tensor] = field(default_factory=dict, repr=False)
    """Instances by node type of a disjoint batch, int64: the number of the seed whose subgraph each node is in, of link
    batches the link's number; empty for other batches."""
    seed_time: torch.Tensor | None = field(default=None, repr=False)
    """Times of the seeds, with `time`."""
    subgraph_type: str = "directional"
    """Edges in `hops`; ``induced`` and ``bidirectional`` ones are in one entry for all hops."""

    @property
    def seeds(self) -> torch.Tensor:
        """Ids (ranks) of the seeds, in order."""
        return self.nodes[self.seed_type][: self.num_nodes[0][self.seed_type]]

    @property
    def x(self) -> torch.Tensor | dict[str, torch.Tensor]:
        """Features: a tensor where the graph has one node type, else tensors by type."""
        return next(iter(self.features.values())) if len(self.nodes) == 1 and self.features else self.features

    @property
    def num_edges(self) -> int:
        """Edges sampled in all hops and relations."""
        return sum(int(edges.shape[1]) for hop in self.hops for edges in hop.values())

    def tensors(self) -> list[torch.Tensor]:
        """Return every tensor of the batch."""
        return list(tensors_in(vars(self), lambda part: vars(part).values() if isinstance(part, BatchLinks) else ()))

    def blocks(self) -> list[Block]:
        """Return the edges by layer, input side first: layer l of L reads the features of hop L - l's sources.

        With frontier ``all`` a layer has the edges of one hop, at which every node sampled again; with ``new``, where a
        node samples once, also the edges of the hops nearer to the seeds. Every layer of an ``induced`` or
        ``bidirectional`` batch is the whole batch: there is one block.
        """
        if self.subgraph_type != "directional":
            parts = (_join_hops(all_) for all_ in (self.hops, self.weights, self.positions))
            edges, weights, positions = parts
            rows, last = _join_hops(self.edge_features, 0), self.num_nodes[-1]
            return [Block(edges, last, last, weights, positions, rows)]
        blocks = []
        for hop in reversed(range(len(self.hops))):
            hops = slice(hop if self.frontier == "all" else 0, hop + 1)
            edges, weights, positions = (_join_hops(all_[hops]) for all_ in (self.hops, self.weights, self.positions))
            rows = _join_hops(self.edge_features[hops], 0)
            blocks.append(Block(edges, self.num_nodes[hop + 1], self.num_nodes[hop], weights, positions, rows))
        return blocks


def _join_hops(hops: Sequence[Mapping[Relation, torch.Tensor]], axis: int = -1) -> dict[Relation, torch.Tensor]:
    return {relation: concatenate([hop[relation] for hop in hops], axis) for relation in hops[0]} if hops else {}


def rows_of_edges(
    batch: Batch, tables: EdgeRows, gather: Callable[[FeatureSource, torch.Tensor], torch.Tensor]
) -> list[dict[Relation, torch.Tensor]]:
    """Return `Batch.edge_features` of `tables`, whose rows `gather` takes by position."""
    if not tables:
        return []
    return [{r: gather(tables[r], places) for r, places in hop.items() if r in tables} for hop in batch.positions]


def sampled_batch(
    sampled: SampledBatch,
    seed_type: str,
    frontier: FrontierRule,
    put: Callable[[torch.Tensor], torch.Tensor] = lambda tensor: tensor,
) -> Batch:
    """Return a batch of the sampler's arrays, without features; `put` takes each tensor to the batch's device."""
    import torch

    def tensor(array: npt.NDArray[Any]) -> torch.Tensor:
        return put(torch.from_numpy(array))

    hops: list[dict[Relation, torch.Tensor]] = [{} for _ in sampled.hops]
    for relation in sampled.hops[0] if sampled.hops else ():
        drawn = [hop[relation] for hop in sampled.hops]
        ends = [0, *accumulate(len(edges) for edges in drawn)]
        both = np.empty((2, ends[-1]), np.int64)  # edges of all hops, one after the other, which joins them
        for edges, (first, last) in zip(drawn, pairwise(ends), strict=True):
            both[0, first:last], both[1, first:last] = edges.src, edges.dst
        together = tensor(both)
        for hop, (first, last) in zip(hops, pairwise(ends), strict=True):
            hop[relation] = together[:, first:last]

    return Batch(
        epoch=sampled.epoch,
        index=sampled.batch,
        seed_type=seed_type,
        nodes={node_type: tensor(ids) for node_type, ids in sampled.nodes.items()},
        num_nodes=sampled.num_nodes,
        hops=hops,
        frontier=frontier,
        weights=[{r: tensor(e.weights) for r, e in hop.items() if e.weights is not None} for hop in sampled.hops],
        positions=[{r: tensor(e.positions) for r, e in hop.items() if e.positions is not None} for hop in sampled.hops],
        batch={node_type: tensor(instance) for node_type, instance in sampled.instances.items()},
        seed_time=tensor(sampled.seed_time[seed_type]) if sampled.seed_time else None,
        subgraph_type=sampled.subgraph_type,
    )


def about_targets(plan: Plan, batch: Batch, put: Callable[[npt.NDArray[Any]], torch.Tensor]) -> Batch:
    """Return the batch with the positions of its seeds or links; `put` takes arrays to the batch's device."""
    if isinstance(plan, LinkPlan):
        linked = plan.linked_nodes(batch.index)
        negative = None if linked.dst_negative is None else put(linked.dst_negative)
        time = None if linked.time is None else put(linked.time)
        links = BatchLinks(put(linked.src), put(linked.dst), linked.places.size, negative, time)
        if linked.end_links is not None:  # both ends of a link have its number; they stay two subgraphs
            of_instance = put(np.concatenate([linked.end_links[t] for t in batch.nodes if t in linked.end_links]))
            batch = replace(batch, batch={t: of_instance[instance] for t, instance in batch.batch.items()})
        return replace(batch, input_id=put(linked.places), links=links, seed_time=None)
    places = plan.places_of(batch.index)[batch.seed_type]
    if batch.num_nodes[0][batch.seed_type] != places.size:  # a seed that came twice counts once, where it came first
        places = places[np.sort(np.unique(plan[batch.index][batch.seed_type], return_index=True)[1])]
    return replace(batch, input_id=put(places))
