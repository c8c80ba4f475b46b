"""An open layout: the graph and the tiers behind one object. ``tiering.open`` returns it for layout directories."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from tiering.artifacts.manifest import Manifest, Relation
from tiering.artifacts.problems import Problem
from tiering.formats.layout import Layout
from tiering.loader.engines import DEFAULT_DEPTH
from tiering.loader.process import ForkLock
from tiering.loader.reopen import same_layout
from tiering.sampling import Fanout, FrontierRule, SamplingOptions
from tiering.units import parse_device, parse_fanouts

if TYPE_CHECKING:
    from tiering.formats.graph import Graph
    from tiering.loader.features import TieredFeatures
    from tiering.loader.gpu.features import GpuFeatures
    from tiering.loader.gpu.peers import PeerGroup
    from tiering.loader.loader import Loader
    from tiering.loader.rows import FeatureRows, Gatherable

Table = TypeVar("Table", bound="FeatureRows")


class TieredLayout:
    """A layout ready to read. Ids everywhere are ranks; `new_to_old` leads back to the ids of the source.

    Opening reads the manifest only. Memory tiers are loaded by the first `features` of a type. Use as a context
    manager, or call `close`, to give memory and descriptors back at a known time.
    """

    def __init__(self, artifact: Layout) -> None:
        self.artifact = artifact
        """The layout on disk."""
        self._tables: dict[tuple[Any, ...], FeatureRows] = {}
        self._lock = ForkLock()

    @property
    def path(self) -> Path:
        """Directory of the layout."""
        return self.artifact.path

    @property
    def manifest(self) -> Manifest:
        """The layout's manifest."""
        return self.artifact.manifest

    @property
    def digest(self) -> str:
        """Digest of the manifest."""
        return self.artifact.digest

    @property
    def graph(self) -> Graph:
        """The reordered graph."""
        return self.artifact.graph

    @property
    def node_types(self) -> list[str]:
        """Node types of the graph."""
        return self.graph.node_types

    @property
    def feature_types(self) -> list[str]:
        """Node types that have features."""
        return self.artifact.feature_types

    @property
    def relations(self) -> list[Relation]:
        """(source type, name, destination type) of each relation."""
        return self.graph.relations

    def feature_dim(self, node_type: str) -> int:
        """Elements per feature row of a type. Opens nothing."""
        return self.artifact.type_layout(node_type).dim

    def num_nodes(self, node_type: str | None = None) -> int:
        """Nodes of a type; of all types if none is given."""
        return self.graph.num_nodes(node_type)

    def num_edges(self, relation: Relation | str | None = None) -> int:
        """Edges of a relation; of all relations if none is given."""
        return self.graph.num_edges(relation)

    def num_classes(self, node_type: str | None = None) -> int | None:
        """Number of classes, or ``None`` without labels."""
        return self.graph.num_classes(node_type)

    def csc(self, relation: Relation | str | None = None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """``(indptr, indices)`` of a relation in ranks; see `tiering.formats.graph.Graph.csc`."""
        return self.graph.csc(relation)

    def new_to_old(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Original id of each rank."""
        return self.graph.new_to_old(node_type)

    def old_to_new(self, node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Rank of each original id."""
        return self.graph.old_to_new(node_type)

    def labels(self, node_type: str | None = None) -> np.ndarray[Any, Any] | None:
        """Class by rank, int64 with -1 for none; ``None`` if the type has no labels."""
        return self.graph.labels(node_type)

    def split(self, name: str = "train", node_type: str | None = None) -> np.ndarray[Any, Any]:
        """Ranks of a split's nodes, in the order of the source."""
        return self.graph.split(name, node_type)

    def features(
        self,
        node_type: str | None = None,
        *,
        engine: str = "auto",
        depth: int = DEFAULT_DEPTH,
        direct: str = "auto",
        threads: int | str | None = "auto",
        verify: bool = False,
        device: Any = "cpu",
        most_sms: int | str = "auto",
        peers: PeerGroup | str | None = "auto",
    ) -> TieredFeatures | GpuFeatures:
        """Tiered feature rows of a node type. The same arguments give the same open table.

        Parameters
        ----------
        node_type
            May be left out where one type has features.
        engine
            How the ssd tier is read: ``auto`` (io_uring, else threads; logged), ``io_uring``, ``threads``, ``mmap``.
        depth
            SSD reads in flight at most.
        direct
            O_DIRECT: ``auto``, ``on`` or ``off``.
        threads
            Threads that copy rows from memory.
        verify
            Whether the files of the memory tiers are compared with their checksums when they are loaded, and each page
            of the ssd tier before rows are taken from it; whole pages are read then. A loader compares the adjacency,
            too, once, when it is made.
        device
            ``cpu``: rows arrive in host memory, where all tiers but ssd live. ``cuda``, ``cuda:1``, a
            ``torch.device``: rows arrive in the memory of that GPU, where the gpu tier lives.
        most_sms
            With a GPU: multiprocessors that a gather may use (0: all; ``auto``: a tenth).
        peers
            With a GPU: processes that share the peer tier. ``auto``: those that ``torchrun`` started on this machine;
            ``off``: none; or a `tiering.loader.PeerGroup`.

        Raises
        ------
        MissingError
            If the type has no features, or an image is gone.
        CapabilityError
            If an engine or device was named that is not available, or there are no checksums of pages to `verify`
            by; the message says why.
        BudgetError
            If memory of the GPU, or host memory to lock, does not suffice.
        """
        if node_type is None:
            node_type = self.feature_types[0] if len(self.feature_types) == 1 else "(say which)"
        group = peers if isinstance(peers, str) else id(peers)
        index = parse_device(device)
        reading = {"engine": engine, "depth": depth, "direct": direct, "threads": threads, "verify": verify}
        if index is None:
            return self.host_features(node_type, **reading)
        key = (node_type, *reading.values(), index, most_sms, group)
        return self._opened(key, lambda: self._gpu_features(node_type, index, most_sms, peers, reading))

    def host_features(self, node_type: str, **reading: Any) -> TieredFeatures:
        """`features` on the host; `reading`: engine, depth, direct, threads, verify."""
        from tiering.loader.features import TieredFeatures

        key = (node_type, *sorted(reading.items()), None)
        return self._opened(key, lambda: TieredFeatures(self.artifact, node_type, **reading))

    def _opened(self, key: tuple[Any, ...], open_table: Callable[[], Table]) -> Table:
        """The table that goes by `key`, opened if it is not."""
        with self._lock:
            table = self._tables.get(key)
            if table is None or table.closed:
                self._tables[key] = table = open_table()
            return cast("Table", table)

    def _gpu_features(
        self, node_type: str, index: int, most_sms: int | str, peers: PeerGroup | str | None, reading: dict[str, Any]
    ) -> GpuFeatures:
        from tiering.loader.gpu.device import open_device
        from tiering.loader.gpu.features import GpuFeatures
        from tiering.loader.gpu.peers import find_group

        group = find_group(peers)
        return GpuFeatures(
            self.artifact, node_type, open_device(index), most_sms=most_sms, group=group, **reading
        )  # fmt: skip

    def loader(
        self,
        split: str | None = "train",
        *,
        fanouts: Sequence[Fanout] | Mapping[Any, Sequence[int]] | str = (10, 10),
        batch_size: int = 1024,
        seed: int = 0,
        frontier: FrontierRule = "all",
        sampler: str = "uniform",
        num_walks: int = 200,
        walk_length: int = 2,
        restart: float = 0.5,
        metapaths: Sequence[Sequence[Any]] | None = None,
        node_type: str | None = None,
        seeds: Any = None,
        shuffle: bool = True,
        drop_last: bool = False,
        features: str | Gatherable | Mapping[str, Gatherable] | None = "tiers",
        engine: str = "auto",
        depth: int = DEFAULT_DEPTH,
        direct: str = "auto",
        verify: bool = False,
        workers: int = 2,
        prefetch: int = 2,
        device: Any = "cpu",
        sample_on: str = "auto",
        peers: PeerGroup | str | None = "auto",
        most_sms: int | str = "auto",
        peer_lists: int | str = 0,
    ) -> Loader:
        """Mini-batches with features, sampled and gathered in the background.

        Parameters
        ----------
        split
            Split whose nodes are the seeds.
        fanouts
            Neighbours per hop, the seeds' own hop first, in any form of `tiering.units.parse_fanouts`; see
            `tiering.sampling.NeighborSampler`. With ``pinsage`` how many of the most visited nodes, with ``ladies``
            nodes per layer.
        batch_size
            Seeds per batch.
        seed
            Seed of the order of the seeds and of sampling.
        frontier
            ``all`` (every node found so far samples again) or ``new`` (only nodes first found at the hop before).
        sampler
            ``uniform``, ``replacement``, ``weighted`` or ``full``: `tiering.sampling.NeighborSampler`; ``pinsage``:
            `tiering.sampling.RandomWalkSampler`; ``ladies``: `tiering.sampling.LayerSampler`. The last two give
            their edges weights.
        num_walks, walk_length, restart, metapaths
            Of ``pinsage``.
        node_type
            Type of the seeds; may be left out where one type has the split.
        seeds
            Ids (ranks) to use instead of a split.
        shuffle
            ``False``: seeds in the order given, for validation.
        drop_last
            Leave out a last batch that is short.
        features
            ``tiers``; ``memory`` (all rows are first read into memory); an object with ``gather(ids)``, or one per node
            type; ``None`` for the structure alone. Batches are the same, bit for bit.
        engine, depth, direct, verify
            As in `features`.
        workers
            Threads that sample.
        prefetch
            Batches kept ready beyond those being worked on.
        device
            Where batches arrive: ``cpu``, ``cuda``, ``cuda:1``, or a ``torch.device``. On a GPU, sampling and gathering
            run on streams of their own, ahead of training; a batch is ready for the stream that torch works on.
        sample_on
            Who samples for a GPU: ``gpu`` (`NeighborSampler`'s rules), ``cpu``, or ``auto``: the GPU if it can. Batches
            are the same.
        peers, most_sms
            As in `features`.
        peer_lists
            Memory on each of the peers' GPUs for adjacency lists that they share, such as ``2GiB``: those next in rank
            after the ones that the layout puts on every GPU. All processes give the same.

        Raises
        ------
        InputError
            If the split is empty or an argument does not fit.
        MissingError
            If there is no such split.
        CapabilityError
            If `device` or `engine` is not available.
        """
        from tiering.loader.loader import Loader

        sampling = SamplingOptions(
            parse_fanouts(fanouts), batch_size, frontier, sampler, seed, num_walks, walk_length, restart, metapaths
        )
        return Loader(
            self, split=split, node_type=node_type, seeds=seeds, sampling=sampling, shuffle=shuffle,
            drop_last=drop_last, features=features, engine=engine, depth=depth, direct=direct, verify=verify,
            workers=workers, prefetch=prefetch, device=device, sample_on=sample_on, peers=peers, most_sms=most_sms,
            peer_lists=peer_lists,
        )  # fmt: skip

    def problems(self, level: str = "header", threads: int = 1) -> list[Problem]:
        """Every problem of the layout on disk; see `tiering.artifacts.artifact.Artifact.problems`."""
        return self.artifact.problems(level, threads)

    def summary(self) -> dict[str, Any]:
        """What ``tiering info`` prints."""
        return self.artifact.summary()

    def close(self) -> None:
        """Close every table that `features` opened."""
        with self._lock:
            for table in self._tables.values():
                table.close()
            self._tables.clear()

    def __enter__(self) -> TieredLayout:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (str(self.path.absolute()), self.digest)

    def __repr__(self) -> str:
        return f"<TieredLayout {self.path}>"


def _reopen(path: str, digest: str) -> TieredLayout:
    return TieredLayout(same_layout(path, digest))


def open_layout(path: str | os.PathLike[str]) -> TieredLayout:
    """Open the layout at `path`.

    Raises
    ------
    MissingError
        If there is no artifact at `path`.
    FormatError
        If it is no layout, damaged, or of a version this package cannot read.
    """
    return TieredLayout(Layout.open(path))
