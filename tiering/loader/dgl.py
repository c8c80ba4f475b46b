"""Batches as DGL's ``DataLoader`` over a ``NeighborSampler`` makes them: input nodes, output nodes, blocks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import dgl
import numpy as np
import torch
from dgl.dataloading.negative_sampler import PerSourceUniform

from tiering.errors import InputError
from tiering.loader.adapters import AdaptedBatches, Adapter, BatchSource, Lookup
from tiering.loader.batches.batch import Batch, Block
from tiering.loader.options import LinkOptions
from tiering.loader.targets import EDGE_IDS
from tiering.sampling import Negatives


class DglAdapter(Adapter):
    """A converter of batches to input nodes, output nodes and blocks; ids are the source's."""

    def __init__(self, holds: AdaptedBatches, source: BatchSource, feature_name: str, label_name: str) -> None:
        super().__init__(holds, source, splits=False)
        self._feature_name, self._label_name = feature_name, label_name

    def convert(self, batch: Batch) -> tuple[Any, ...]:
        """Return DGL's batch."""
        ids = {t: known.original_ids(batch.nodes[t]) for t, known in self.nodes.items()}
        layers = batch.blocks()
        blocks = [self._block(layer, ids) for layer in layers]
        for t, rows in batch.features.items():
            blocks[0].srcnodes[t].data[self._feature_name] = self.nodes[t].features(rows)
        for t, known in self.nodes.items():
            labels = known.labels(batch.nodes[t][: layers[-1].num_dst[t]])
            if labels is not None:
                blocks[-1].dstnodes[t].data[self._label_name] = labels
        outputs = {t: ids[t][:count] for t, count in layers[-1].num_dst.items()}
        return self._plain(ids), self._plain(outputs), blocks

    def contents(self, value: Any) -> Iterable[Any]:
        """Return the edges of a graph, and the data of its nodes and edges; nothing for other objects."""
        if not isinstance(value, dgl.DGLGraph):
            return ()
        ends = ((value.srcnodes, value.srctypes), (value.dstnodes, value.dsttypes))
        frames = [nodes[t].data for nodes, types in ends for t in types]
        frames += [value.edges[r].data for r in value.canonical_etypes]
        return [*map(dict, frames), *(value.edges(etype=r) for r in value.canonical_etypes)]

    def _block(self, layer: Block, ids: dict[str, torch.Tensor]) -> Any:
        """Return a layer's edges between the first nodes of each type."""
        edges = {r: (both[0], both[1]) for r, both in layer.edge_index.items()}
        block = dgl.create_block(edges, layer.num_src, layer.num_dst)
        for nodes, counts in ((block.srcnodes, layer.num_src), (block.dstnodes, layer.num_dst)):
            for t, count in counts.items():
                nodes[t].data[dgl.NID] = ids[t][:count]
        for r, positions in layer.positions.items():
            attributes = self.edges[r]
            for name, values in ({} if attributes is None else attributes(positions)).items():
                block.edges[r].data[dgl.EID if name == EDGE_IDS else name] = values
        for r, weight in layer.edge_weight.items():  # the sampler's, which take the place of the graph's
            block.edges[r].data["weight"] = weight
        return block

    def _plain(self, nodes: dict[str, torch.Tensor]) -> Any:
        """Return a tensor where there is one type, else tensors by type."""
        return next(iter(nodes.values())) if self.homogeneous else nodes


class DglLinkAdapter(DglAdapter):
    """A converter to input nodes, the graph of the links, the graph of sampled negative pairs if any, and blocks."""

    def __init__(self, holds: AdaptedBatches, source: BatchSource, links: LinkOptions, **names: str) -> None:
        super().__init__(holds, source, **names)
        self._relation, no_edges = links.relation, links.pairs is not None
        self._positions = None if links.order is None else Lookup(links.order, source.device, mapped=True)
        self._attributes = None if no_edges else self.edges.get(links.relation)
        self._numbered = no_edges  # ids of links named by their ends are positions in the list

    def convert(self, batch: Batch) -> tuple[Any, ...]:
        """Return DGL's batch."""
        inputs, _, blocks = super().convert(batch)
        links, places = batch.links, batch.input_id
        assert links is not None and places is not None
        pairs = self._graph(blocks[-1], links.src[: links.count], links.dst[: links.count])
        data = {EDGE_IDS: places} if self._numbered else {}
        if self._attributes is not None:
            data = self._attributes(places if self._positions is None else self._positions(places))
        for name, values in data.items():
            pairs.edges[self._relation].data[dgl.EID if name == EDGE_IDS else name] = values
        if links.dst_negative is not None:
            src, dst = links.src.repeat_interleave(links.dst_negative.shape[1]), links.dst_negative.flatten()
        else:
            src, dst = links.src[links.count :], links.dst[links.count :]
        negatives = [self._graph(blocks[-1], src, dst)] if len(src) else []
        return (inputs, pairs, *negatives, blocks)

    def _graph(self, block: Any, src: torch.Tensor, dst: torch.Tensor) -> Any:
        """Return a graph of the graph's types, with edges of the links' relation, over the nodes of the batch."""
        edges = dict.fromkeys([*self.edges, self._relation], (src[:0], src[:0])) | {self._relation: (src, dst)}
        counts = {t: block.num_dst_nodes(t) for relation in edges for t in relation[::2]}
        graph = dgl.heterograph(edges, counts)
        for t in counts:
            graph.nodes[t].data[dgl.NID] = block.dstnodes[t].data[dgl.NID]
        return graph


def find_negatives(sampler: Any) -> Negatives | None:
    """Return the negatives of DGL's ``Uniform(k)``, or a number k for it, or what `Negatives.of` takes."""
    if isinstance(sampler, PerSourceUniform):
        sampler = sampler.k
    if isinstance(sampler, int | np.integer) and not isinstance(sampler, bool):
        return Negatives("triplet", int(sampler))
    if callable(sampler):
        raise InputError(
            "negative_sampler: expected Uniform(k), k, a mode or a mapping of both, found "
            f"{type(sampler).__name__}; mode 'binary' samples pairs of any nodes"
        )
    return Negatives.of(sampler)
