"""Mini-batches for training: sample, extract, consume, overlapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from tiering.artifacts.manifest import Relation
from tiering.errors import CapabilityError, InputError
from tiering.loader.batch import Batch
from tiering.loader.features import MemoryFeatures
from tiering.loader.host_batches import HostBatches
from tiering.loader.mapped import MappedFiles
from tiering.loader.pipeline import Stage, run_stages
from tiering.loader.require_torch import require_torch
from tiering.loader.rows import FeatureRows, Gatherable
from tiering.sampling import EpochPlan, NeighborSampler, Sampler, SamplingOptions, make_sampler
from tiering.units import format_count, parse_bytes, parse_device

if TYPE_CHECKING:
    from tiering.loader.gpu.peers import PeerGroup
    from tiering.loader.gpu.sampler import GpuSampler
    from tiering.loader.layout import TieredLayout


class _Batches(Protocol):
    """Makes the batches of an epoch."""

    def stages(self, plan: EpochPlan, epoch: int) -> list[Stage]:
        """Steps in the background, for batch numbers."""

    def receive(self, ready: Any) -> Batch:
        """What the last step made, handed to the consumer in its own thread."""


class Loader:
    """Batches of one split of a layout; iterate it once per epoch.

    ``for batch in loader`` runs the next epoch (0, 1, ...); ``loader.epoch(e)`` runs epoch e. A batch is a pure
    function of the layout, the arguments and ``(seed, epoch, index)``: neither the number of workers nor where
    features come from changes it. Made by `TieredLayout.loader`, which describes the parameters.
    """

    _made_of: tuple[TieredLayout, dict[str, Any]]

    def __init__(
        self,
        layout: TieredLayout,
        *,
        split: str | None,
        node_type: str | None,
        seeds: Any,
        sampling: SamplingOptions,
        shuffle: bool,
        drop_last: bool,
        features: str | Gatherable | Mapping[str, Gatherable] | None,
        engine: str,
        depth: int,
        direct: str,
        verify: bool,
        workers: int,
        prefetch: int,
        device: Any = "cpu",
        sample_on: str = "auto",
        peers: PeerGroup | str | None = "auto",
        most_sms: int | str = "auto",
        peer_lists: int | str = 0,
    ) -> None:
        require_torch()
        for name, value, lowest in (("workers", workers, 1), ("prefetch", prefetch, 0)):
            if not isinstance(value, (int, np.integer)) or value < lowest:
                raise InputError(f"{name}: expected a whole number of at least {lowest}, found {value!r}")
        self.layout = layout
        if verify:
            layout.graph.verify_reads()
        self.node_type, self.seeds = _find_seeds(layout, split, node_type, seeds)
        """Type of the seeds; their ids (ranks), int64, in the order of the source."""
        self.batch_size, self.shuffle, self.drop_last = sampling.batch_size, shuffle, drop_last
        self.workers, self.prefetch = int(workers), int(prefetch)
        self.sampling, self.sampler = sampling, make_sampler(layout.graph, sampling)
        """How batches are sampled, and what samples them."""
        reading = {"engine": engine, "depth": depth, "direct": direct, "verify": verify}
        there = {"device": device, "peers": peers, "most_sms": most_sms}
        self.features = _find_features(layout, features, reading, there)
        """Where each node type's rows come from; types without features are absent."""
        self._labels = layout.labels(self.node_type)
        if verify:
            layout.graph.finish_reads()  # what is too large to be compared before it is used
        self._batches = self._find_batches(device, sample_on, peers, peer_lists)
        self._mapped = MappedFiles(layout.graph)
        self._next_epoch = 0
        self._plan(0)  # nonsense shows now, not in the first epoch

    def __new__(cls, layout: TieredLayout, **options: Any) -> Loader:
        """Note what the loader is made of, for other processes to make it again."""
        loader = super().__new__(cls)
        loader._made_of = (layout, options)
        return loader

    def __reduce__(self) -> tuple[Any, ...]:
        if parse_device(self._made_of[1].get("device", "cpu")) is not None:
            raise CapabilityError(
                "a loader whose batches arrive on a GPU cannot be pickled, because that GPU's memory belongs to one "
                "process; pickle the layout, and make the loader in the other process"
            )
        return _make_again, (*self._made_of, self._next_epoch)

    @property
    def relations(self) -> list[Relation]:
        """Relations of the edges in a batch: the graph's own; with random walks, one per metapath."""
        return list(self.sampler.edge_relations)

    def __len__(self) -> int:
        """Batches per epoch."""
        full, rest = divmod(len(self.seeds), self.batch_size)
        return full if self.drop_last or not rest else full + 1

    def __iter__(self) -> Iterator[Batch]:
        epoch, self._next_epoch = self._next_epoch, self._next_epoch + 1
        return self.epoch(epoch)

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """Batches of one epoch, in order.

        Raises
        ------
        StageError
            In the consumer's loop, if sampling or extraction fails in the background; its cause is the error itself.
        """
        plan, batches = self._plan(epoch), self._batches
        first, *rest = batches.stages(plan, epoch)
        stages = [replace(first, run=self._mapped.before(first.run)), *rest]
        ahead = self.workers + self.prefetch
        with closing(run_stages(len(plan), stages, ahead, f"epoch {epoch}, batch")) as ready:  # type: ignore[type-var]
            for each in ready:
                yield batches.receive(each)

    def reset_counters(self) -> None:
        """Begin counting rows, bytes and seconds at zero in every table."""
        for source in self.features.values():
            if isinstance(source, FeatureRows):
                source.reset_counters()

    def counters(self) -> dict[str, dict[str, Any]]:
        """Counters of every node type's table, JSON types only."""
        return {t: s.counters.as_dict() for t, s in self.features.items() if isinstance(s, FeatureRows)}

    def _plan(self, epoch: int) -> Any:
        return self.sampler.batches(
            {self.node_type: self.seeds},
            self.batch_size,
            epoch,
            drop_last=self.drop_last,
            shuffle=self.shuffle,
        )

    def _find_batches(
        self, device: Any, sample_on: str, peers: PeerGroup | str | None, peer_lists: int | str
    ) -> _Batches:
        """Who makes the batches: the host, or a GPU."""
        index, rule = parse_device(device), self.sampler.rule
        if sample_on not in ("auto", "cpu", "gpu"):
            raise InputError(f"sample_on: expected auto, cpu or gpu, found {sample_on!r}")
        by_lists = isinstance(self.sampler, NeighborSampler)
        if sample_on == "gpu" and (index is None or not by_lists):
            what = "device='cpu'" if index is None else f"sampler {self.sampling.sampler!r} (rule {rule})"
            raise CapabilityError(f"sample_on='gpu': not with {what}; use sample_on='auto'")
        if index is None:
            return HostBatches(self.sampler, self.features, self._labels, self.node_type, self.workers)
        from tiering.loader.gpu.batches import GpuBatches
        from tiering.loader.gpu.device import open_device
        from tiering.loader.gpu.peers import find_group
        from tiering.loader.gpu.sampler import GpuSampler

        there = open_device(index)
        sampler: Sampler | GpuSampler = self.sampler
        if by_lists and sample_on != "cpu" and isinstance(self.sampler, NeighborSampler):
            nbytes = parse_bytes(peer_lists, "peer_lists")
            sampler = GpuSampler(self.layout.artifact, self.sampler, there, find_group(peers), nbytes)
        return GpuBatches(there, sampler, self.features, self._labels, self.node_type, self.workers)

    def __repr__(self) -> str:
        return (
            f"<Loader {self.node_type!r}: {format_count(len(self.seeds))} seeds, {len(self)} batches of "
            f"{self.batch_size}, sampler {self.sampling.sampler}, fanouts {self.sampler.fanouts}, "
            f"frontier {self.sampler.frontier}>"
        )


def _make_again(layout: TieredLayout, options: dict[str, Any], next_epoch: int) -> Loader:
    loader = Loader(layout, **options)
    loader._next_epoch = next_epoch
    return loader


def _find_seeds(
    layout: TieredLayout, split: str | None, node_type: str | None, seeds: Any
) -> tuple[str, np.ndarray[Any, Any]]:
    """Node type and ids of the seeds; from the split unless ids are given."""
    graph = layout.graph
    if seeds is not None:
        if node_type is None and len(graph.node_types) != 1:
            raise InputError(f"seeds: say which node_type they are; types: {', '.join(graph.node_types)}")
        ids = np.asarray(seeds.numpy() if hasattr(seeds, "numpy") else seeds)
        what = "seeds"
    else:
        split = split or "train"
        if node_type is None:
            owners = [each for each in graph.node_types if split in graph.splits(each)]
            node_type = owners[0] if len(owners) == 1 else None
        ids = graph.split(split, node_type)
        what = f"split {split!r}"
    node_type = node_type or graph.node_types[0]
    if ids.size == 0:
        raise InputError(f"{layout.path}: {what} of node type {node_type!r} is empty; there is nothing to load")
    return node_type, ids


def _find_features(
    layout: TieredLayout, features: Any, reading: dict[str, Any], there: dict[str, Any]
) -> dict[str, Gatherable]:
    """Resolve the `features` argument of the loader to one source per node type."""
    if features is None:
        return {}
    if isinstance(features, str):
        if features == "tiers":
            return {t: layout.features(t, **reading, **there) for t in layout.feature_types}
        if features == "memory":
            return {
                t: MemoryFeatures.load(layout.host_features(t, **reading, threads="auto")) for t in layout.feature_types
            }
        raise InputError(f"features: expected 'tiers', 'memory', a table or a mapping, found {features!r}")
    if isinstance(features, Mapping):
        unknown = [t for t in features if t not in layout.node_types]
        if unknown:
            raise InputError(f"features: no node type {unknown[0]!r}; types: {', '.join(layout.node_types)}")
        return dict(features)
    if not hasattr(features, "gather"):
        raise InputError(f"features: expected an object with gather(ids), found {type(features).__name__}")
    if len(layout.node_types) != 1:
        raise InputError("features: the graph has several node types; give a mapping from node type to table")
    return {layout.node_types[0]: features}
