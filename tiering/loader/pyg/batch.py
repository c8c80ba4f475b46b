"""Batches as `torch_geometric.loader.NeighborLoader` and `LinkNeighborLoader` make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from tiering.artifacts.manifest import Relation
from tiering.errors import InputError
from tiering.formats.arrow import as_array
from tiering.formats.features import EDGE_FEATURES
from tiering.loader.adapters import AdaptedBatches, Adapter, BatchSource, Lookup
from tiering.loader.batches.batch import Batch
from tiering.loader.batches.tensors import concatenate
from tiering.loader.targets import EDGE_IDS, LinkTargets

if TYPE_CHECKING:
    from torch_geometric.data import Data, HeteroData

PYG_NAMES = {EDGE_IDS: "e_id", "weight": "edge_weight", "type": "edge_type", EDGE_FEATURES: "edge_attr"}
"""PyG's names of edge data."""


class PygAdapter(Adapter):
    """A converter of batches to ``Data`` where there is one node type and one relation, else to ``HeteroData``.

    `masks`: nodes have ``train_mask`` and the like; `input_id`, `edge_label`: ids and labels of seeds or links.
    """

    def __init__(
        self, holds: AdaptedBatches, source: BatchSource, masks: bool, hetero: bool = False, input_id: Any = None,
        edge_label: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        super().__init__(holds, source, masks)
        self.homogeneous = self.homogeneous and not hetero
        self._input_id = None if input_id is None else Lookup(as_array(input_id), source.device, mapped=True)
        if input_id is not None and len(input_id) != len(source.targets):
            raise InputError(f"input_id: expected one for each of {source.targets!r}, found {len(input_id)}")
        time, targets = source.graph.time, source.targets
        self._time = "" if time is None else time.name
        self._edge_label, self._seed_type = edge_label, targets.node_type
        self._relation = targets.links.relation if isinstance(targets, LinkTargets) else None

    def convert(self, batch: Batch) -> Data | HeteroData:
        """Return PyG's batch."""
        from torch_geometric.data import Data, HeteroData

        data: Any = Data() if self.homogeneous else HeteroData()
        for node_type in self.nodes:
            self._fill_nodes(data if self.homogeneous else data[node_type], node_type, batch)
        for relation in self.edges:
            self._fill_edges(data if self.homogeneous else data[relation], relation, batch)
        if self._relation is None:
            seeds = data if self.homogeneous else data[self._seed_type]
            seeds.input_id = self._ids_of(batch)
            seeds.batch_size = batch.num_nodes[0][self._seed_type]
            if batch.seed_time is not None:
                seeds.seed_time = batch.seed_time
        else:
            self._fill_links(data, self._relation, batch)
        return data

    def contents(self, value: Any) -> Iterable[Any]:
        """Return the contents of a `Data`, a `HeteroData` or a matrix of torch-sparse's; nothing for other objects."""
        from torch_geometric.data.data import BaseData
        from torch_geometric.typing import SparseTensor

        if isinstance(value, BaseData):
            return list(value.to_dict().values())
        return vars(value.storage).values() if isinstance(value, SparseTensor) else ()

    def _ids_of(self, batch: Batch) -> torch.Tensor:
        assert batch.input_id is not None
        return batch.input_id if self._input_id is None else self._input_id(batch.input_id)

    def _fill_nodes(self, store: Any, node_type: str, batch: Batch) -> None:
        ranks, known = batch.nodes[node_type], self.nodes[node_type]
        if node_type in batch.features:
            store.x = known.features(batch.features[node_type])
        if (labels := known.labels(ranks)) is not None:
            store.y = labels
        if (times := known.times(ranks)) is not None:
            store[self._time] = times
        for split, inside in known.splits(ranks).items():
            store[f"{split}_mask"] = inside
        store.n_id = known.original_ids(ranks)
        store.num_nodes = len(ranks)
        if batch.subgraph_type == "directional":
            store.num_sampled_nodes = new_by_hop(batch.num_nodes)[node_type]
        if batch.batch:
            store.batch = batch.batch[node_type]

    def _fill_edges(self, store: Any, relation: Relation, batch: Batch) -> None:
        edges = [hop[relation] for hop in batch.hops]
        store.edge_index = concatenate(edges, 1)
        if batch.subgraph_type == "directional":
            store.num_sampled_edges = [int(drawn.shape[1]) for drawn in edges]
        attributes = self.edges[relation]
        if attributes is not None and relation in batch.positions[0]:
            positions = concatenate([hop[relation] for hop in batch.positions])
            for name, values in attributes(positions).items():
                store[PYG_NAMES.get(name, name)] = values
        if batch.weights and relation in batch.weights[0]:  # the sampler's, which take the place of the graph's
            store.edge_weight = concatenate([hop[relation] for hop in batch.weights])

    def _fill_links(self, data: Any, relation: Relation, batch: Batch) -> None:
        links, parts = batch.links, (relation[0], relation, relation[2])
        assert links is not None and batch.input_id is not None
        of_src, of_links, of_dst = [data] * 3 if self.homogeneous else [data[part] for part in parts]
        of_links.input_id = self._ids_of(batch)
        if links.dst_negative is not None:
            of_src.src_index, of_dst.dst_pos_index = links.src, links.dst
            of_dst.dst_neg_index = links.dst_negative.squeeze(-1)
            if links.time is not None:
                of_src.seed_time = of_dst.seed_time = links.time
            return
        if links.time is not None:
            of_links.edge_label_time = links.time
        of_links.edge_label_index = torch.stack((links.src, links.dst))
        known = self._edge_label
        if known is not None:
            known = known[batch.input_id.to(known.device)].to(batch.input_id.device)
        count = len(batch.input_id)
        of_links.edge_label = edge_label(known, count, len(links.src) - links.count, batch.input_id.device)


def new_by_hop(num_nodes: Sequence[Mapping[str, int]]) -> dict[str, list[int]]:
    """Return the new nodes of each hop by node type, the seeds first; `num_nodes`: as in `Batch.num_nodes`."""
    totals = {node_type: [at_hop[node_type] for at_hop in num_nodes] for node_type in num_nodes[0]}
    return {t: [known[0], *(later - earlier for earlier, later in pairwise(known))] for t, known in totals.items()}


def edge_label(known: torch.Tensor | None, links: int, negatives: int, device: Any = "cpu") -> torch.Tensor | None:
    """Return the labels of links, 1 unless `known`, then 0 for each negative pair; ``None``, as PyG, with neither."""
    if known is None and not negatives:
        return None
    label = torch.ones(links, device=device) if known is None else known
    return torch.cat((label, label.new_zeros((negatives, *label.shape[1:]))))
