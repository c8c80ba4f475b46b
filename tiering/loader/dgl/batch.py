"""Batches as DGL's ``DataLoader`` over a ``NeighborSampler`` makes them: input nodes, output nodes, blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import dgl
import torch

from tiering.formats.features import EDGE_FEATURES
from tiering.formats.graph import Graph
from tiering.loader.attributes import EDGE_IDS, EdgeAttributes, NodeAttributes
from tiering.loader.batches import Batch, Block, EdgeRows
from tiering.loader.gpu.device import Device
from tiering.loader.targets import Targets
from tiering.sampling import Sampler

Triple = tuple[Any, Any, list[Any]]
"""Input nodes, output nodes (tensors, or tensors by type), and one block per layer."""


@dataclass(frozen=True)
class DglBatches:
    """What batches for DGL hold; makes the adapter of a loader."""

    edge_names: tuple[str, ...] = ()
    """Edge data to take along."""
    feature_name: str = "feat"
    """Name of features in ``blocks[0].srcdata``."""
    label_name: str = "label"
    """Name of labels in ``blocks[-1].dstdata``."""
    transform: Callable[[Any], Any] | None = None
    """Called with each batch, in the background."""

    @property
    def edge_positions(self) -> bool:
        """Whether it has to be known where edges stand."""
        return bool(self.edge_names)

    @property
    def edge_features(self) -> bool:
        """Whether edges' features are among what is taken along."""
        return EDGE_FEATURES in self.edge_names

    def __call__(
        self, graph: Graph, sampler: Sampler, targets: Targets, device: Device | None, edge_rows: EdgeRows
    ) -> DglAdapter:
        """The adapter of a loader."""
        return DglAdapter(self, graph, sampler, targets, device, edge_rows)


class DglAdapter:
    """Makes input nodes, output nodes and blocks of each batch; ids are those of the source."""

    def __init__(
        self,
        holds: DglBatches,
        graph: Graph,
        sampler: Sampler,
        targets: Targets,
        device: Device | None,
        edge_rows: EdgeRows,
    ) -> None:
        self._holds, self._seed_type = holds, targets.node_type
        self._nodes = {t: NodeAttributes(graph, t, device, splits=False) for t in graph.node_types}
        self._edges = {
            r: EdgeAttributes(graph, r, device, holds.edge_names, edge_rows.get(r)) if r in graph.relations else None
            for r in sampler.edge_relations
        }
        self._homogeneous = len(self._nodes) == len(self._edges) == 1

    def adapt(self, batch: Batch) -> Triple:
        """DGL's batch."""
        ids = {t: known.original_ids(batch.nodes[t]) for t, known in self._nodes.items()}
        layers = batch.blocks()
        blocks = [self._block(layer, ids) for layer in layers]
        for t, rows in batch.features.items():
            blocks[0].srcnodes[t].data[self._holds.feature_name] = rows
        for t, known in self._nodes.items():
            labels = known.labels(batch.nodes[t][: layers[-1].num_dst[t]])
            if labels is not None:
                blocks[-1].dstnodes[t].data[self._holds.label_name] = labels
        outputs = {t: ids[t][:count] for t, count in layers[-1].num_dst.items()}
        made = self._plain(ids), self._plain(outputs), blocks
        return made if self._holds.transform is None else self._holds.transform(made)

    def tensors(self, adapted: Any) -> list[torch.Tensor]:
        """Every tensor of it."""
        inputs, outputs, blocks = adapted
        tensors = [t for nodes in (inputs, outputs) for t in (nodes.values() if isinstance(nodes, dict) else [nodes])]
        for block in blocks:
            frames = [nodes[t].data for nodes, types in _ends(block) for t in types]
            frames += [block.edges[r].data for r in block.canonical_etypes]
            tensors += [frame[name] for frame in frames for name in frame]
            tensors += [tensor for r in block.canonical_etypes for tensor in block.edges(etype=r)]
        return tensors

    def _block(self, layer: Block, ids: dict[str, torch.Tensor]) -> Any:
        """A layer's edges between the first nodes of each type."""
        edges = {r: (both[0], both[1]) for r, both in layer.edge_index.items()}
        block = dgl.create_block(edges, layer.num_src, layer.num_dst)
        for nodes, counts in ((block.srcnodes, layer.num_src), (block.dstnodes, layer.num_dst)):
            for t, count in counts.items():
                nodes[t].data[dgl.NID] = ids[t][:count]
        for r, positions in layer.positions.items():
            attributes = self._edges[r]
            for name, values in ({} if attributes is None else attributes(positions)).items():
                block.edges[r].data[dgl.EID if name == EDGE_IDS else name] = values
        for r, weight in layer.edge_weight.items():  # the sampler's, which take the place of the graph's
            block.edges[r].data["weight"] = weight
        return block

    def _plain(self, nodes: dict[str, torch.Tensor]) -> Any:
        """A tensor where there is one type, else by type."""
        return next(iter(nodes.values())) if self._homogeneous else nodes


def _ends(block: Any) -> list[tuple[Any, list[str]]]:
    return [(block.srcnodes, block.srctypes), (block.dstnodes, block.dsttypes)]
