"""Mini-batches for training: sample, extract, consume, overlapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any

import numpy as np

from tiering.artifacts.manifest import Relation
from tiering.errors import CapabilityError, InputError
from tiering.formats.graph import Graph
from tiering.loader.batch import Batch
from tiering.loader.batches import BatchSource, HostBatches
from tiering.loader.features import MemoryFeatures
from tiering.loader.mapped import MappedFiles
from tiering.loader.messages import require_torch
from tiering.loader.options import LoaderOptions, SeedOptions
from tiering.loader.pipeline import run_stages
from tiering.loader.rows import FeatureRows, Gatherable
from tiering.loader.tables import FeatureTables
from tiering.sampling import NeighborSampler, make_sampler
from tiering.units import format_count, parse_bytes


class Loader:
    """Batches of one split of a layout; iterate it once per epoch.

    ``for batch in loader`` runs the next epoch (0, 1, ...); ``loader.epoch(e)`` runs epoch e. A batch is a pure
    function of the layout, the arguments and ``(seed, epoch, index)``: neither the number of workers nor where
    features come from changes it. Made by `TieredLayout.loader`, which describes the options.

    Parameters
    ----------
    layout
        The open layout that makes the loader: kept for its callers, and pickled in the loader's place.
    tables
        Its feature tables.
    """

    def __init__(self, layout: Any, tables: FeatureTables, options: LoaderOptions) -> None:
        require_torch()
        self.layout, self.options = layout, options
        artifact, graph, verify = tables.layout, tables.layout.graph, options.reading.verify
        if verify:
            graph.verify_reads()
        self.node_type, self.seeds = _find_seeds(graph, str(artifact.path), options.seeds)
        """Type of the seeds; their ids (ranks), int64, in the order of the source."""
        self.sampling, self.sampler = options.sampling, make_sampler(graph, options.sampling)
        """How batches are sampled, and what samples them."""
        self.features = _find_features(tables, options)
        """Where each node type's rows come from; types without features are absent."""
        self._labels = graph.labels(self.node_type)
        if verify:
            graph.finish_reads()  # what is too large to be compared before it is used
        self._batches = self._find_source(tables)
        self._mapped = MappedFiles(graph)
        self._next_epoch = 0
        self._plan(0)  # nonsense shows now, not in the first epoch

    def __reduce__(self) -> tuple[Any, ...]:
        if self.options.device.index is not None:
            raise CapabilityError(
                "a loader whose batches arrive on a GPU cannot be pickled, because that GPU's memory belongs to one "
                "process; pickle the layout, and make the loader in the other process"
            )
        return _make_again, (self.layout, self.options, self._next_epoch)

    @property
    def batch_size(self) -> int:
        """Seeds per batch."""
        return self.sampling.batch_size

    @property
    def relations(self) -> list[Relation]:
        """Relations of the edges in a batch: the graph's own; with random walks, one per metapath."""
        return list(self.sampler.edge_relations)

    def __len__(self) -> int:
        """Batches per epoch."""
        full, rest = divmod(len(self.seeds), self.batch_size)
        return full if self.options.seeds.drop_last or not rest else full + 1

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
        ahead = int(self.options.pipeline.workers + self.options.pipeline.prefetch)
        with closing(run_stages(len(plan), stages, ahead, f"epoch {epoch}, batch")) as ready:  # type: ignore[type-var]
            for made in ready:
                yield batches.receive(made)

    def reset_counters(self) -> None:
        """Begin counting rows, bytes and seconds at zero in every table."""
        for source in self.features.values():
            if isinstance(source, FeatureRows):
                source.reset_counters()

    def counters(self) -> dict[str, dict[str, Any]]:
        """Counters of every node type's table, JSON types only."""
        return {t: s.counters.as_dict() for t, s in self.features.items() if isinstance(s, FeatureRows)}

    def _plan(self, epoch: int) -> Any:
        order = self.options.seeds
        return self.sampler.batches(
            {self.node_type: self.seeds}, self.batch_size, epoch, drop_last=order.drop_last, shuffle=order.shuffle
        )

    def _find_source(self, tables: FeatureTables) -> BatchSource:
        """Who makes the batches: the host, or a GPU."""
        where, pipeline = self.options.device, self.options.pipeline
        by_gpu = where.index is not None and isinstance(self.sampler, NeighborSampler)
        if pipeline.sample_on == "gpu" and not by_gpu:
            what = "device='cpu'" if where.index is None else f"sampler {self.sampling.sampler!r}"
            raise CapabilityError(f"sample_on='gpu': not with {what}; use sample_on='auto'")
        workers = int(pipeline.workers)
        if where.index is None:
            return HostBatches(self.sampler, self.features, self._labels, self.node_type, workers)
        from tiering.loader.gpu.batches import GpuBatches
        from tiering.loader.gpu.device import open_device
        from tiering.loader.gpu.peers import find_group
        from tiering.loader.gpu.sampler import GpuSampler

        device = open_device(where.index)
        if isinstance(self.sampler, NeighborSampler) and pipeline.sample_on != "cpu":
            nbytes = parse_bytes(pipeline.peer_adjacency_cache, "peer_adjacency_cache")
            sampler = GpuSampler(tables.layout, self.sampler, device, find_group(where.peers), nbytes)
            return GpuBatches(device, sampler, self.features, self._labels, self.node_type, workers)
        return GpuBatches(device, self.sampler, self.features, self._labels, self.node_type, workers)

    def __repr__(self) -> str:
        return (
            f"<Loader {self.node_type!r}: {format_count(len(self.seeds))} seeds, {len(self)} batches of "
            f"{self.batch_size}, sampler {self.sampling.sampler}, fanouts {self.sampler.fanouts}, "
            f"frontier {self.sampler.frontier}>"
        )


def _make_again(layout: Any, options: LoaderOptions, next_epoch: int) -> Loader:
    loader = Loader(layout, layout.tables, options)
    loader._next_epoch = next_epoch
    return loader


def _find_seeds(graph: Graph, path: str, options: SeedOptions) -> tuple[str, np.ndarray[Any, Any]]:
    """Node type and ids of the seeds; from the split unless ids are given."""
    node_type, seeds = options.node_type, options.seeds
    if seeds is not None:
        if node_type is None and len(graph.node_types) != 1:
            raise InputError(f"seeds: say which node_type they are; types: {', '.join(graph.node_types)}")
        ids = np.asarray(seeds.numpy() if hasattr(seeds, "numpy") else seeds)
        what = "seeds"
    else:
        split = options.split or "train"
        if node_type is None:
            owners = [known for known in graph.node_types if split in graph.splits(known)]
            node_type = owners[0] if len(owners) == 1 else None
        ids = graph.split(split, node_type)
        what = f"split {split!r}"
    node_type = node_type or graph.node_types[0]
    if ids.size == 0:
        raise InputError(f"{path}: {what} of node type {node_type!r} is empty; there is nothing to load")
    return node_type, ids


def _find_features(tables: FeatureTables, options: LoaderOptions) -> dict[str, Gatherable]:
    """One source of rows for each node type that has features."""
    features, layout, types = options.features, tables.layout, tables.layout.graph.node_types
    if features is None:
        return {}
    if isinstance(features, str):
        if features == "tiers":
            return {t: tables.open(t, options.reading, options.device) for t in layout.feature_types}
        if features == "memory":
            return {t: MemoryFeatures.load(tables.on_host(t, options.reading)) for t in layout.feature_types}
        raise InputError(f"features: expected 'tiers', 'memory', a table or a mapping, found {features!r}")
    if isinstance(features, Mapping):
        if unknown := [t for t in features if t not in types]:
            raise InputError(f"features: no node type {unknown[0]!r}; types: {', '.join(types)}")
        return dict(features)
    if not hasattr(features, "gather"):
        raise InputError(f"features: expected an object with gather(ids), found {type(features).__name__}")
    if len(types) != 1:
        raise InputError("features: the graph has several node types; give a mapping from node type to table")
    return {types[0]: features}
