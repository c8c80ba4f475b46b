"""What turns batches into those of another library: what is asked of it, and what all such have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from tiering.artifacts.manifest import Relation
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.graph import Graph
from tiering.loader.attributes import EdgeAttributes, NodeAttributes
from tiering.loader.batches.batch import Batch, EdgeRows
from tiering.loader.batches.targets import Targets
from tiering.loader.gpu.device import Device
from tiering.sampling import Sampler


class Adapter(Protocol):
    """Turns batches into those of another library, in the background, where the batch lies and on its stream."""

    def adapt(self, batch: Batch) -> Any:
        """The other library's batch."""

    def contents(self, value: Any) -> Iterable[Any]:
        """What lies in an object of the other library's: tensors, and what holds some; nothing in any other object."""


@dataclass(frozen=True)
class BatchSource:
    """What the batches of a loader are made of."""

    graph: Graph
    sampler: Sampler
    targets: Targets
    device: Device | None
    """The GPU on which batches lie; ``None``: the host."""
    edge_rows: EdgeRows
    """Features of edges; empty unless asked for."""


@dataclass(frozen=True)
class AdaptedBatches(ABC):
    """What another library's batches hold; makes the adapter of a loader."""

    edge_names: tuple[str, ...] = ()
    """Edge data to take along."""
    transform: Callable[[Any], Any] | None = None
    """Called with each batch, in the background."""

    @property
    def edge_positions(self) -> bool:
        """Whether it has to be known where edges stand."""
        return bool(self.edge_names)

    @property
    def edge_features(self) -> bool:
        """Whether edges' features are taken from the tiers."""
        return EDGE_FEATURES in self.edge_names

    @abstractmethod
    def adapter(self, source: BatchSource) -> Adapter:
        """The adapter of a loader."""


class GraphAttributes:
    """What adapters know of the graph, by node type and by relation.

    `homogeneous` says whether there is one of each: then the libraries' batches have no names of types.
    """

    def __init__(self, source: BatchSource, holds: AdaptedBatches, splits: bool) -> None:
        graph, device = source.graph, source.device
        self.nodes = {t: NodeAttributes(graph, t, device, splits) for t in graph.node_types}
        # With random walks relations are metapaths, whose edges stand nowhere.
        self.edges: dict[Relation, EdgeAttributes | None] = dict.fromkeys(source.sampler.edge_relations)
        for r in graph.relations if holds.edge_names else []:
            if r in self.edges:
                self.edges[r] = EdgeAttributes(graph, r, device, holds.edge_names, source.edge_rows.get(r))
        self.homogeneous = len(self.nodes) == len(self.edges) == 1
