"""The `BaseSampler` with which PyG's `NodeLoader` and `LinkLoader` draw batches of a layout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import numpy as np
import torch
import xxhash
from torch_geometric.sampler import (
    BaseSampler,
    EdgeSamplerInput,
    HeteroSamplerOutput,
    NegativeSampling,
    NodeSamplerInput,
    SamplerOutput,
)

from tiering.artifacts.manifest import Relation
from tiering.errors import CapabilityError, InputError
from tiering.loader.adapters import EdgeAttributes
from tiering.loader.layout import TieredLayout
from tiering.loader.pyg.batch import PYG_NAMES, edge_label, new_by_hop
from tiering.loader.pyg.stores import BatchNodes, BatchNodesByType, EdgeValues, homogeneous
from tiering.loader.targets import EDGE_IDS, Ids, NodeIds, find_link_type, find_node_type, make_negatives
from tiering.sampling import Links, NegativeDraws, Negatives, SamplingOptions, link_nodes, make_sampler
from tiering.sampling.plan import whole_number


class _Bidirectional:
    """An output whose edge data, those of other edges then, go where PyG makes it bidirectional."""

    def to_bidirectional(self, *arguments: Any, **keywords: Any) -> Any:
        out = super().to_bidirectional(*arguments, **keywords)  # type: ignore[misc]
        out.node = dict(out.node) if isinstance(out.node, dict) else out.node.as_subclass(torch.Tensor)
        return out


class _Output(_Bidirectional, SamplerOutput): ...  # type: ignore[misc] # PyG has no types


class _HeteroOutput(_Bidirectional, HeteroSamplerOutput): ...  # type: ignore[misc]


class TieredSampler(BaseSampler):  # type: ignore[misc] # PyG has no types
    """A neighbour sampler for PyG's `NodeLoader` and `LinkLoader`; frontier ``new``, as PyG's.

    A batch is a pure function of the layout, the seed, the epoch and the original ids of its seeds or links.
    """

    def __init__(
        self,
        layout: TieredLayout,
        options: SamplingOptions,
        ids: str,
        edge_names: tuple[str, ...],
        hetero: bool,
        epoch: torch.Tensor | None = None,
    ) -> None:
        self._layout, self._options = layout, options
        self._graph = graph = layout.artifact.graph
        self._ids = NodeIds(graph, ids)
        self._sampler = make_sampler(graph, options)
        zero = torch.zeros((), dtype=torch.int64)
        # In memory that torch shares with other processes: workers that live on see it change.
        self._epoch: torch.Tensor = (zero if epoch is None else epoch).share_memory_()  # type: ignore[no-untyped-call]
        self._edges = {r: EdgeAttributes(graph, r, None, edge_names) for r in graph.relations}
        self._edge_names, self._alone = edge_names, homogeneous(graph, hetero)
        self._positions = ids == "rank" or bool(edge_names)
        self._draws: tuple[Any, Relation, NegativeDraws] | None = None

    @property
    def epoch(self) -> int:
        """Epoch in the key of the random numbers; 0 until `set_epoch`."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch in all workers, before it begins; the same seeds have other neighbours in another epoch."""
        self._epoch.fill_(whole_number(epoch, 0, 2**63, "epoch", ", 0 or more"))

    def sample_from_nodes(self, index: NodeSamplerInput, **kwargs: Any) -> SamplerOutput | HeteroSamplerOutput:
        """Sample around nodes. A node that comes twice counts once, where it came first."""
        _refuse_time(index.time)
        node_type = find_node_type(self._graph, index.input_type, "input nodes")
        seeds = self._ids.ranks(node_type, index.node, "input nodes")
        input_id = index.input_id
        firsts = np.unique(seeds, return_index=True)[1]
        if input_id is not None and firsts.size != seeds.size:
            input_id = input_id[torch.from_numpy(np.sort(firsts))]
        key = _key(self._ids.originals(node_type, seeds))
        return self._output({node_type: seeds}, key, (input_id, None))

    def sample_from_edges(
        self, index: EdgeSamplerInput, neg_sampling: NegativeSampling | None = None
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample around the ends of links and of negative pairs."""
        _refuse_time(index.time)
        relation = find_link_type(self._graph, index.input_type, edges=False)
        src = self._ids.ranks(relation[0], index.row, "links: sources")
        dst = self._ids.ranks(relation[2], index.col, "links: destinations")
        draws = self._negative_draws(neg_sampling, relation)
        if draws is not None and draws.negatives.triplets and index.label is not None:
            raise InputError("edge_label: triplets have no labels; leave it out, or draw negatives in mode binary")
        links = Links.of_ids(relation, src, dst, self._num_nodes(relation), self._ids.to_ranks)
        key = _key(self._ids.originals(relation[0], src), self._ids.originals(relation[2], dst))
        linked = link_nodes(links, np.arange(links.count), draws, (self._options.seed, self.epoch, key))
        ends = torch.from_numpy(linked.src), torch.from_numpy(linked.dst)
        if linked.dst_negative is not None:
            negative = torch.from_numpy(linked.dst_negative).squeeze(-1)
            about: tuple[Any, ...] = (index.input_id, *ends, negative, None)
        else:
            label = edge_label(index.label, links.count, linked.src.size - links.count)
            about = (index.input_id, torch.stack(ends), label, None)
        return self._output(linked.nodes, key, about)

    def _output(
        self, seeds: dict[str, Ids], key: int, metadata: tuple[Any, ...]
    ) -> SamplerOutput | HeteroSamplerOutput:
        """Sample and return PyG's output: edges of all hops one after the other."""
        sampled = self._sampler.sample(seeds, epoch=self.epoch, batch=key, positions=self._positions)
        node = BatchNodesByType()
        node.update({t: torch.from_numpy(self._ids.from_ranks(t, ranks)) for t, ranks in sampled.nodes.items()})
        node.edges, row, col, edge, edges_by_hop = {}, {}, {}, {}, {}
        for relation in self._sampler.edge_relations:
            hops = [hop[relation] for hop in sampled.hops]
            row[relation] = torch.from_numpy(np.concatenate([edges.src for edges in hops]).astype(np.int64))
            col[relation] = torch.from_numpy(np.concatenate([edges.dst for edges in hops]).astype(np.int64))
            edge[relation], node.edges[relation] = self._edge_values(relation, [edges.positions for edges in hops])
            edges_by_hop[relation] = [len(edges) for edges in hops]
        nodes_by_hop = new_by_hop(sampled.num_nodes)
        parts = (row, col, edge, None, nodes_by_hop, edges_by_hop)
        if not self._alone:
            return _HeteroOutput(node, *parts, metadata=metadata)
        (nodes,), (values,) = node.values(), node.edges.values()
        (nodes := nodes.as_subclass(BatchNodes)).edges = values
        return _Output(
            nodes, *(None if part is None else next(iter(part.values())) for part in parts), metadata=metadata
        )

    def _edge_values(self, relation: Relation, positions: list[Any]) -> tuple[torch.Tensor | None, EdgeValues]:
        """Return edge ids and data. Ids are positions in the source, ``None`` if not kept; ranks': in ``indices``."""
        if not self._positions:
            return None, EdgeValues()
        places = torch.from_numpy(np.concatenate(positions))
        values = self._edges[relation](places)
        ids = values.pop(EDGE_IDS, None)
        named = EdgeValues({PYG_NAMES.get(name, name): data for name, data in values.items()})
        return places if self._ids.kind == "rank" else ids, named

    def _negative_draws(self, sampling: Any, relation: Relation) -> NegativeDraws | None:
        """Return the draws of negatives, made once for a loader, whose batches all bring the same request."""
        if sampling is None:
            return None
        if self._draws is None or self._draws[0] is not sampling or self._draws[1] != relation:
            negatives = cast(Negatives, make_negatives(sampling))
            src = self._by_original(relation[0], negatives.src_weight)
            dst = self._by_original(relation[2], negatives.dst_weight)
            negatives = replace(negatives, src_weight=src, dst_weight=dst)
            self._draws = sampling, relation, NegativeDraws(negatives, self._num_nodes(relation))
        return self._draws[2]

    def _by_original(self, node_type: str, weight: Any) -> Any:
        """Return weights by original ids; those of the wrong shape are refused by `NegativeDraws`."""
        count = self._graph.num_nodes(node_type)
        if weight is None or self._ids.kind == "original" or weight.shape != (count,):
            return weight
        return weight[self._ids.to_ranks(node_type, np.arange(count))]

    def _num_nodes(self, relation: Relation) -> tuple[int, int]:
        return self._graph.num_nodes(relation[0]), self._graph.num_nodes(relation[2])

    def __reduce__(self) -> tuple[Any, ...]:
        more = self._edge_names, not self._alone, self._epoch
        return TieredSampler, (self._layout, self._options, self._ids.kind, *more)

    def __repr__(self) -> str:
        fanouts = list(self._options.fanouts)
        return f"<TieredSampler {self._layout.artifact.path}, fanouts: {fanouts}, ids: {self._ids.kind}>"


def _key(*originals: Ids) -> int:
    """Return a hash of the ids of a batch, its number in the key of random numbers."""
    return xxhash.xxh3_64_intdigest(np.concatenate(originals).astype("<i8").tobytes())


def _refuse_time(time: Any) -> None:
    if time is not None:
        raise CapabilityError(
            "input_time, edge_label_time: graphs here have no time stamps that sampling could go by; leave it out"
        )
