"""An open layout: the graph and the tiers in one object, which ``tiering.open`` returns for layout directories."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from contextlib import AbstractContextManager
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakValueDictionary

import numpy.typing as npt

from tiering.artifacts.artifact import VerifyReport
from tiering.artifacts.atomic import OutputDirectory
from tiering.artifacts.manifest import Problem, Relation
from tiering.errors import MissingError
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.loader.frameworks import ForFrameworks
from tiering.loader.gpu import device as gpu_device
from tiering.loader.gpu.rows import GpuFeatures
from tiering.loader.loader import Loader
from tiering.loader.options import DeviceOptions, LinkOptions, LoaderOptions, ReadOptions, group_keywords
from tiering.loader.process import ForkLock
from tiering.loader.processes.peers import PeerGroup, find_group
from tiering.loader.tables.gather import TieredFeatures, same_layout
from tiering.loader.tables.ssd_buffer import SsdBuffer
from tiering.sampling import Negatives
from tiering.sampling.options import Fanouts
from tiering.text.description import Described, Part

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tiering.loader.options import BatchKeywords, NodeKeywords, RowKeywords


P = ParamSpec("P")
T = TypeVar("T")


def _forward(method: Callable[Concatenate[Any, P], T], owner: str = "graph") -> Callable[Concatenate[Any, P], T]:
    """Return a method of the layout that calls one of its graph, or of another part."""

    @wraps(method)
    def forward(layout: Any, /, *args: P.args, **keywords: P.kwargs) -> T:
        return method(getattr(layout, owner), *args, **keywords)

    return forward


class Count(int):
    """A number that is also the method by type or relation: ``layout.num_nodes``, ``layout.num_nodes("paper")``."""

    _method: Callable[..., Any]

    def __new__(cls, number: int, method: Callable[..., Any]) -> Count:
        """Return the number of all, with the method that counts those of a type or relation."""
        count = super().__new__(cls, number)
        count._method = method
        return count

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Return the number of a type or relation, or of all."""
        return self._method(*args, **keywords) if args or keywords or not self else int(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return int, (int(self),)


class TieredLayout(ForFrameworks, Described, AbstractContextManager["TieredLayout"]):
    """An open layout. Ids everywhere are ranks; `new_to_old` maps them to the ids of the source.

    `csc`, `new_to_old`, `old_to_new` and `labels` are methods of the reordered graph
    (`tiering.formats.graph.Graph`), `summary` of the layout on disk.

    Opening reads the manifest only; the first `features` of a type loads its memory tiers. Close it, or use it as a
    context manager, to give memory and descriptors back at a known time.
    """

    def __init__(self, artifact: Layout) -> None:
        self.artifact = artifact
        """The layout on disk."""
        self.path, self.manifest, self.digest = artifact.path, artifact.manifest, artifact.digest
        """Its directory, its manifest, and the manifest's digest."""
        self.buffers: MutableMapping[Any, SsdBuffer] = WeakValueDictionary()
        """Buffers in front of the ssd tier, of the loaders that exist."""
        self._tables: dict[tuple[Any, ...], TieredFeatures | GpuFeatures] = {}
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
    def num_nodes(self) -> Count:
        """Nodes of all types; called with a type, of that one."""
        return Count(self.graph.num_nodes(), self.graph.num_nodes)

    @property
    def num_edges(self) -> Count:
        """Edges of all relations; called with a relation, of that one."""
        return Count(self.graph.num_edges(), self.graph.num_edges)

    @property
    def num_classes(self) -> Any:
        """Classes of the only node type with labels, 0 for none; called, `tiering.formats.graph.Graph.num_classes`."""
        numbers = [number for t in self.node_types if (number := self.graph.num_classes(t)) is not None]
        return self.graph.num_classes if len(numbers) > 1 else Count(sum(numbers), self.graph.num_classes)

    csc = _forward(Graph.csc)
    new_to_old = _forward(Graph.new_to_old)
    old_to_new = _forward(Graph.old_to_new)
    labels = _forward(Graph.labels)
    summary = _forward(Layout.summary, "artifact")

    def split(self, name: str = "train", node_type: str | None = None) -> npt.NDArray[Any]:
        """Return the ranks of a split's nodes, in the order of the source."""
        return self.graph.split(name, node_type)

    def open_table(
        self,
        node_type: str,
        reading: ReadOptions,
        where: DeviceOptions,
        preloaded: bool = False,
        group: PeerGroup | None = None,
    ) -> TieredFeatures | GpuFeatures:
        """Return the one open table of a node type or relation key; `preloaded`: its rows on SSD lie in memory."""
        index = where.index
        group = group if index is None else find_group(where.peers)
        # On a GPU one table, preloaded or not: its memory does not hold a gpu tier twice.
        key = (node_type, reading, group, index, preloaded if index is None else where.max_sms)
        with self._lock:
            table = self._tables.get(key)
            if table is None or table.closed:
                if index is None:
                    table = TieredFeatures(self.artifact, node_type, reading, preloaded, group)
                else:
                    device, sms = gpu_device.open_device(index), where.max_sms
                    table = GpuFeatures(self.artifact, node_type, device, reading, max_sms=sms, group=group)
                self._tables[key] = table
        if preloaded and isinstance(table, GpuFeatures):
            table.preload()
        return table

    def features(self, node_type: str | None = None, **options: Unpack[RowKeywords]) -> TieredFeatures | GpuFeatures:
        """Return the tiered feature rows of a node type. The same arguments give the same open table.

        Parameters
        ----------
        node_type
            May be left out where one type has features.
        engine, drives, depth, direct, threads, verify, dtype, device, max_sms, peers
            See `tiering.loader.options.ReadOptions` and `tiering.loader.options.DeviceOptions`.

        Raises
        ------
        MissingError, CapabilityError, BudgetError
            If the type has no features, or a stripe file is gone; an engine or device is not available, or there are no
            checksums to `verify` by; memory of the GPU, or host memory to lock, does not suffice.
        """
        node_type = self._featured(node_type)
        if ":" in node_type:
            raise MissingError(f"{self.path}: {node_type!r} is no node type; features of edges are `edge_features`")
        return self.open_table(node_type, *group_keywords("features", (ReadOptions, DeviceOptions), options))

    def edge_features(
        self, relation: Relation | str | None = None, **options: Unpack[RowKeywords]
    ) -> TieredFeatures | GpuFeatures:
        """Return the tiered rows of a relation's edge features, a table as of `features`.

        Its ids are positions in the relation's ``indices`` (`csc`), as of `Batch.positions`. `relation`: as in
        `tiering.formats.graph.Graph.relation`; may be left out where the edges of one have features. `MissingError`: no
        features of these edges are in the tiers.
        """
        groups = group_keywords("edge_features", (ReadOptions, DeviceOptions), options)
        return self.open_table(self.artifact.edge_table(relation), *groups)

    def loader(
        self,
        split: str | None = "train",
        *,
        fanouts: Fanouts = (10, 10),
        features: Any = "tiers",
        **options: Unpack[NodeKeywords],
    ) -> Loader:
        """Return a loader of mini-batches with features, sampled and gathered in the background.

        Parameters
        ----------
        split, node_type, seeds, seed_time, shuffle, drop_last, rank, world_size
            Seeds, their times, their order; see `tiering.loader.options.SeedOptions`. ``None``: all nodes; with
            ``shuffle=False`` in the order of their ranks, which `pyg_loader` and `dgl_loader` replace by that of the
            source.
        fanouts
            Neighbours per hop, the seeds' own hop first, in forms of `tiering.text.units.parse_fanouts`. ``pinsage``:
            how many of the most visited nodes; ``ladies``: nodes per layer.
        batch_size, frontier, sampler, seed, num_walks, walk_length, restart, metapaths
            See `tiering.sampling.SamplingOptions`. ``pinsage`` and ``ladies`` give their edges weights.
        time, temporal_strategy, time_window, disjoint, subgraph_type
            See `tiering.sampling.Subgraphs`.
        features
            ``tiers``; ``memory`` (all rows are first read into memory); an object with ``gather(ids)``, or one per node
            type; ``None`` for the structure alone. Batches are the same, bit for bit.
        engine, drives, depth, direct, threads, verify, dtype
            See `tiering.loader.options.ReadOptions`.
        device, max_sms, peers
            See `tiering.loader.options.DeviceOptions`.
        memory, window, ssd_model
            See `tiering.loader.options.MemoryOptions`.
        workers, prefetch, in_order, progress, edge_positions, edge_features, sample_on
            See `tiering.loader.options.PipelineOptions`.

        Raises
        ------
        InputError, MissingError, CapabilityError
            If an argument does not fit, or the split is empty; there is no such split; `device` or `engine` is not
            available.
        """
        return Loader(self, LoaderOptions.of(features, {"split": split, "fanouts": fanouts, **options}))

    def link_loader(
        self,
        relation: Relation | str | None = None,
        *,
        links: Any = None,
        negatives: Negatives | str | float | Mapping[str, Any] | None = None,
        link_time: Any = None,
        fanouts: Fanouts = (10, 10),
        features: Any = "tiers",
        **options: Unpack[BatchKeywords],
    ) -> Loader:
        """Return a loader of mini-batches of links, for link prediction.

        The ends of links and of negative pairs are sampled around; ``batch.links`` says which nodes they are.

        Parameters
        ----------
        relation
            Relation of the links; may be left out where there is one.
        links
            Ids (ranks) of shape (2, links), sources above destinations; by default all edges of the relation in the
            order of its ``indices`` (8 bytes of memory per edge, for their order in an epoch).
        negatives
            Negative pairs to draw in addition: `tiering.sampling.Negatives`, its mode, an amount of mode ``binary`` for
            each link, or a mapping of its arguments. With times of nodes, nodes that exist at the link's time.
        link_time
            With `time`: the time of each link, which both of its ends, and its negative pairs, are sampled at. A link
            that is an edge of that very time is seen; one less hides it.
        fanouts, features, shuffle, drop_last, ...
            As of `loader`; ``batch_size`` is in links. There is no split, and batches have no `Batch.y`.
        """
        if refused := [name for name in ("split", "node_type", "seeds") if name in options]:
            raise TypeError(f"link_loader() got an unexpected keyword argument {refused[0]!r}")
        asked = LinkOptions(relation, links, Negatives.of(negatives), time=link_time)
        return Loader(self, LoaderOptions.of(features, {"fanouts": fanouts, **options}, asked, "link_loader"))

    def inference(
        self, layers: Iterable[Any], out: str | os.PathLike[str], *, memory: Any = "auto", dtype: Any = None,
        nodes: Any = None, edges: int = 50_000, device: Any = "cpu", force: bool = False, dry_run: bool = False,
        resume: str | None = None,
    ) -> Any:  # fmt: skip
        """Return the embeddings of all nodes: every layer for all nodes, out of core, written to the directory `out`.

        Parameters
        ----------
        layers
            Functions ``layer(block, x)``, or `tiering.loader.inference.Layer`: rows of the sources of an
            `tiering.loader.inference.InferenceBlock` to rows of its destinations, as
            ``lambda block, x: conv((x, x[: block.num_dst]), block.edge_index).relu()``.
        memory
            Memory that this process may hold, messages and outputs of the functions too: ``8GiB``, ``50%``, ``auto``.
        dtype
            Dtype of the tables: ``float32``, ``float16`` or ``bfloat16``, or torch's; by default that of the functions'
            results. A finite number that it cannot hold is refused.
        nodes
            Nodes to make embeddings of: original ids, a mask over them, or (type, ids). ``None``: all. Each layer makes
            what the next one needs.
        edges
            In-edges and destinations of a block, at most; one destination may have more. A function gets at least 16.
        device
            Where blocks and functions are: ``cpu``, ``cuda``.
        force
            Whether to replace what is there, and to begin anew what an unfinished run has left.
        dry_run
            Whether to return the estimate of memory, reads and disk by layer (`tiering.run.plan.Estimate`) instead.
        resume
            ``"trust"``: continue a stopped run although the code of its functions changed or cannot be compared.

        Returns
        -------
        tiering.formats.embeddings.Embeddings

        Raises
        ------
        InputError, ExistsError, BudgetError, ModelError, StorageError
            If a module is in training mode, or an unfinished run had other functions, parameters, torch, options; `out`
            is there; the memory does not suffice for a block; a function fails or returns other rows, or NaN; the disk
            has no room for two tables. A run that was stopped goes on from its last finished block.

        Notes
        -----
        The same blocks for every memory and number of threads, and so the same bits on one machine with one torch.
        Cost: each layer reads its input once if it fits the memory, else as the estimate says, and writes its table.
        """
        from tiering.loader.inference.run import Inference

        if not dry_run:
            OutputDirectory.refuse_existing(out, force)
        inference = Inference(
            self, layers, out, memory=memory, dtype=dtype, nodes=nodes, edges=edges, device=device, force=force,
            resume=resume,
        )  # fmt: skip
        return inference.estimate() if dry_run else inference.run()

    def problems(self, level: str = "header", threads: int = 1) -> list[Problem]:
        """Return every problem of the layout on disk; see `tiering.artifacts.artifact.Artifact.problems`."""
        return self.artifact.problems(level, VerifyReport(threads))

    def describe(self) -> list[Part]:
        """Return what ``tiering info`` prints: the rows of each tier, and the graph."""
        return self.artifact.describe()

    def close(self) -> None:
        """Close every table that `features` opened."""
        with self._lock:
            for table in self._tables.values():
                table.close()
            self._tables.clear()

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path.absolute()), self.digest)

    def __repr__(self) -> str:
        return f"<TieredLayout {self.path}>"


def _reopen(path: str, digest: str) -> TieredLayout:
    return TieredLayout(same_layout(path, digest))


def open_layout(path: str | os.PathLike[str]) -> TieredLayout:
    """Open the layout at `path`; `MissingError` or `FormatError` if there is none that this package can read."""
    return TieredLayout(Layout.open(path, outside=False))
