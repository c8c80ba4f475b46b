"""The graph and the open tables of a layout, which all of its loaders share."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import numpy.typing as npt

from tiering.artifacts.manifest import Relation
from tiering.errors import MissingError
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.layout.cut import cut_layout
from tiering.loader.gpu import device as gpu_device
from tiering.loader.gpu.rows import GpuFeatures
from tiering.loader.options import DeviceOptions, ReadOptions, group_keywords
from tiering.loader.process import ForkLock
from tiering.loader.processes.peers import PeerGroup, find_group
from tiering.loader.tables.gather import TieredFeatures
from tiering.loader.tables.ssd_buffer import SsdBuffer

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.loader.options import RowKeywords


P = ParamSpec("P")
T = TypeVar("T")


def _forward(method: Callable[Concatenate[Any, P], T], owner: str = "graph") -> Callable[Concatenate[Any, P], T]:
    """Return a method of the layout that calls one of its graph, or of another part."""

    @wraps(method)
    def forward(layout: Any, /, *args: P.args, **keywords: P.kwargs) -> T:
        return method(getattr(layout, owner), *args, **keywords)

    return forward


class CallableCount(int):
    """A number that is also the method by type or relation: ``layout.num_nodes``, ``layout.num_nodes("paper")``."""

    _method: Callable[..., Any]

    def __new__(cls, number: int, method: Callable[..., Any]) -> CallableCount:
        """Return the total number; calling it with a type or relation returns that one's number."""
        count = super().__new__(cls, number)
        count._method = method
        return count

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Return the number of a type or relation, or of all."""
        return self._method(*args, **keywords) if args or keywords or not self else int(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class OpenTables:
    """The graph of a layout, its open tables, and the buffers in front of their ssd tiers, for all of its loaders."""

    def __init__(self, artifact: Layout) -> None:
        self.artifact = artifact  # the layout on disk
        self.path = artifact.path
        """Directory of the layout."""
        self.manifest = artifact.manifest
        """Manifest of the layout."""
        self.digest = artifact.digest
        """Digest of the manifest."""
        self.buffers: MutableMapping[Any, SsdBuffer] = WeakValueDictionary()  # for the ssd tier, of existing loaders
        self._tables: dict[tuple[Any, ...], TieredFeatures | GpuFeatures] = {}
        self._views: dict[tuple[Any, ...], Layout] = {}
        self._lock = ForkLock()

    @property
    def graph(self) -> Graph:
        """The reordered graph."""
        return self.artifact.graph

    @property
    def node_types(self) -> list[str]:
        """Node types of the graph."""
        return self.graph.node_types

    @property
    def relations(self) -> list[Relation]:
        """(source type, name, destination type) of each relation."""
        return self.graph.relations

    @property
    def feature_types(self) -> list[str]:
        """Node types that have features."""
        return self.artifact.feature_types

    @property
    def edge_feature_relations(self) -> list[Relation]:
        """Relations whose edges have features in the tiers."""
        return self.artifact.edge_feature_relations

    def feature_dim(self, node_type: str | None = None) -> int:
        """Return the elements per feature row of a type, or of the only one that has features. Opens nothing."""
        return self.artifact.type_layout(self._featured(node_type)).dim

    def _featured(self, node_type: str | None) -> str:
        if node_type is not None:
            return node_type
        return self.feature_types[0] if len(self.feature_types) == 1 else "(say which)"

    @property
    def num_nodes(self) -> CallableCount:
        """Nodes of all types; called with a type, of that one."""
        return CallableCount(self.graph.num_nodes(), self.graph.num_nodes)

    @property
    def num_edges(self) -> CallableCount:
        """Edges of all relations; called with a relation, of that one."""
        return CallableCount(self.graph.num_edges(), self.graph.num_edges)

    @property
    def num_classes(self) -> Any:
        """Classes of the only node type with labels, 0 for none; called, `tiering.formats.graph.Graph.num_classes`."""
        numbers = [number for t in self.node_types if (number := self.graph.num_classes(t)) is not None]
        return self.graph.num_classes if len(numbers) > 1 else CallableCount(sum(numbers), self.graph.num_classes)

    csc = _forward(Graph.csc)
    new_to_old = _forward(Graph.new_to_old)
    old_to_new = _forward(Graph.old_to_new)
    labels = _forward(Graph.labels)
    summary = _forward(Layout.summary, "artifact")

    def split(self, name: str = "train", node_type: str | None = None) -> npt.NDArray[Any]:
        """Return the ranks of a split's nodes, in the order of the source."""
        return self.graph.split(name, node_type)

    def view(self, where: DeviceOptions) -> Layout:
        """Return the layout on disk with tiers of the sizes that `where` gives; see `tiering.layout.cut`."""
        sizes = tuple(size if size is None else str(size) for size in (where.gpu, where.cpu))
        if sizes not in self._views:
            self._views[sizes] = cut_layout(self.artifact, *sizes)
        return self._views[sizes]

    def open_table(
        self,
        node_type: str,
        reading: ReadOptions,
        where: DeviceOptions,
        preloaded: bool = False,
        group: PeerGroup | None = None,
    ) -> TieredFeatures | GpuFeatures:
        """Return the one open table of a node type or relation key; `preloaded`: its rows on SSD lie in memory."""
        artifact, index = self.view(where), where.index
        group = group if index is None else find_group(where.peers)
        # On a GPU one table, preloaded or not: its memory does not hold a gpu tier twice.
        key = (node_type, reading, group, index, preloaded if index is None else where.max_sms, artifact.sizes)
        with self._lock:
            table = self._tables.get(key)
            if table is None or table.closed:
                if index is None:
                    table = TieredFeatures(artifact, node_type, reading, preloaded, group)
                else:
                    device, sms = gpu_device.open_device(index), where.max_sms
                    table = GpuFeatures(artifact, node_type, device, reading, max_sms=sms, group=group)
                self._tables[key] = table
        if preloaded and isinstance(table, GpuFeatures):
            table.preload()
        return table

    def features(self, node_type: str | None = None, **options: Unpack[RowKeywords]) -> TieredFeatures | GpuFeatures:
        """Return the tiered feature rows of a node type. The same arguments give the same open table.

        Parameters
        ----------
        node_type
            May be omitted where one type has features.
        engine, drives, depth, direct, threads, verify, dtype, device, max_sms, peers, gpu, cpu
            See `tiering.loader.options.ReadOptions` and `tiering.loader.options.DeviceOptions`.

        Raises
        ------
        MissingError, CapabilityError, BudgetError
            If the type has no features, or a stripe file is gone; an engine or device is not available, or there are no
            checksums to `verify` by; memory of the GPU, or host memory to lock, does not suffice.
        """
        node_type = self._featured(node_type)
        if ":" in node_type:
            raise MissingError(f"{self.path}: {node_type!r} is not a node type; for edges use `edge_features`")
        return self.open_table(node_type, *group_keywords("features", (ReadOptions, DeviceOptions), options))

    def edge_features(
        self, relation: Relation | str | None = None, **options: Unpack[RowKeywords]
    ) -> TieredFeatures | GpuFeatures:
        """Return the tiered rows of a relation's edge features, in the form of `features`.

        Its ids are positions in the relation's ``indices`` (`csc`), like `Batch.positions`. `relation`: as in
        `tiering.formats.graph.Graph.relation`; may be omitted where the edges of one have features. `MissingError`: no
        features of these edges are in the tiers.
        """
        groups = group_keywords("edge_features", (ReadOptions, DeviceOptions), options)
        return self.open_table(self.artifact.edge_table(relation), *groups)

    def close(self) -> None:
        """Close every table that `features` opened."""
        with self._lock:
            for table in self._tables.values():
                table.close()
            self._tables.clear()
