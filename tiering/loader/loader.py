"""Mini-batches for training: sample, extract, consume, overlapped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, cast

from tiering import cuda
from tiering.artifacts.manifest import relation_key
from tiering.errors import CapabilityError, InputError
from tiering.formats.arrow import as_array
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.graph import checked_labels
from tiering.loader.adapters import AdaptedBatches, BatchSource
from tiering.loader.batches.batch import EdgeRows
from tiering.loader.batches.host import HostBatches
from tiering.loader.batches.lookahead import Lookahead
from tiering.loader.batches.pipeline import StageTimes, run_stages
from tiering.loader.batches.windows import ListWindows
from tiering.loader.gpu import device as gpu_device
from tiering.loader.gpu.batches import GpuBatches, GpuSampler
from tiering.loader.memory import MemoryDecision, check_mapped, decide_memory
from tiering.loader.open_tables import OpenTables
from tiering.loader.options import FeatureSource, LoaderOptions, ReadOptions
from tiering.loader.process import require_torch, warn_once
from tiering.loader.processes.machine import find_rank, host_group
from tiering.loader.processes.peers import find_group
from tiering.loader.resume import Position, describe_batches
from tiering.loader.stats import LoaderStats, collect
from tiering.loader.tables.delivery import Delivery
from tiering.loader.tables.gather import FeatureRows, TieredFeatures
from tiering.loader.tables.ssd import find_depth
from tiering.loader.targets import LinkTargets, NodeTargets, Plan, Targets
from tiering.memory import parse_memory
from tiering.readahead.disk_speed import DiskSpeed, QueueDepth, measured_speed
from tiering.readahead.memory import mapped_files
from tiering.sampling import SampledBatch, make_sampler
from tiering.sampling.plan import id_array, key_word, whole_number
from tiering.text.description import Described, Fields, Part
from tiering.text.progress import progress

_KEPT_SHARE = 1 / 16  # of a GPU's free memory for batches sampled long before their turn; others are sampled again
_LINE = 16  # batches between two changes of the live line


class Loader(Described):
    """A loader of the batches of a split of a layout, or of links; iterate it once per epoch.

    ``for batch in loader`` runs the next epoch (0, 1, ...); ``loader.epoch(e)`` runs epoch e. A batch is a pure
    function of the layout, the arguments and ``(seed, epoch, index)``: neither the number of workers nor the source of
    features changes it. `state_dict` and `load_state_dict` resume in the middle of an epoch. Made by
    `TieredLayout.loader`, which describes the options. With `adapted`, its adapter converts each batch in the
    background.
    """

    def __init__(self, layout: OpenTables, options: LoaderOptions, adapted: AdaptedBatches | None = None) -> None:
        require_torch()
        import_module("torch")  # now, not in the first batch; its memory counts where a budget is measured
        self.layout, self.options, self._adapted = layout, options, adapted
        self.artifact = layout.view(options.device)
        """The layout, with tiers of the sizes that the options give."""
        graph, verify = layout.artifact.graph, options.reading.verify
        if verify:
            graph.verify_reads()
        self.rank = find_rank(options.seeds.rank, options.seeds.world_size)
        seeds = replace(options.seeds, rank=self.rank.rank, world_size=self.rank.world_size)
        about, links = (graph, seeds, options.sampling), options.links
        runs = options.seeds.seeds if hasattr(options.seeds.seeds, "plan") else None
        self.targets: Targets = runs or (NodeTargets(*about) if links is None else LinkTargets(*about, links))
        self.node_type = self.targets.node_type
        """Node type of the seeds; of links, the node type of their destinations."""
        self.batch_size = options.sampling.batch_size
        """Seeds per batch."""
        self.sampling = options.sampling
        self.node_sampler = make_sampler(graph, options.sampling)  # Lightning takes a `sampler` for torch's
        if isinstance(self.targets, NodeTargets | LinkTargets):
            self.targets.check_times(self.node_sampler)
        self.relations = list(self.node_sampler.edge_relations)
        """Relations of the edges in a batch: the graph's own; with random walks, one per metapath."""
        pipeline = options.pipeline
        self._edge_names = () if adapted is None else adapted.edge_names  # edge data that the adapter takes
        self._edge_positions = bool(pipeline.edge_positions or pipeline.edge_features or self._edge_names)
        if self._edge_positions:
            self.node_sampler.check_positions()
        self._plans = {0: self.targets.plan(0)}  # until its epoch begins
        self._gpu_sampler = self._find_gpu_sampler()  # before the features: its memory counts, too
        self._check_dtype()
        self.edge_features = self._find_edge_features()
        """Sources of the features of edges by relation; empty where none are requested."""
        self.windows: ListWindows | None = None
        """Windows of batches that read neighbor lists from their files; ``None`` where memory holds the lists."""
        self.lookahead: Lookahead | None = None
        """Reads rows of the ssd tier ahead of the batches; ``None`` where all rows lie in memory."""
        self._decision: MemoryDecision | None = None
        self.features = self._find_features()
        """Sources of rows by node type; types without features are absent."""
        if self._decision is None:
            left = parse_memory(None if options.memory.memory == "tiers" else options.memory.memory).left()
            self.windows = self._find_windows(left, left)
        self._times = StageTimes()
        self._position = self._next = Position()  # of the epoch begun last, and of the one that `__iter__` begins
        self._batches = self._find_source()
        self._check_order()
        if verify:
            graph.finish_reads()  # files that are too large to be compared before they are used
        self._mapped = list(mapped_files(graph))

    def __reduce__(self) -> tuple[Any, ...]:
        if self.options.device.index is not None:
            raise CapabilityError(
                "a loader whose batches arrive on a GPU cannot be pickled, because the GPU's memory belongs to one "
                "process; pickle the layout, and make the loader in the other process"
            )
        return Loader, (self.layout, self.options, self._adapted), {"_position": self._position, "_next": self._next}

    def __len__(self) -> int:
        """Return the number of batches per epoch of this process."""
        rounds, rest = divmod(len(self.targets), self.batch_size * self.rank.world_size)
        return rounds + bool(rest and not self.options.seeds.drop_last)

    @property
    def dataset(self) -> range:
        """Positions of the seeds or links, whose number scripts for torch's loaders ask for."""
        return range(len(self.targets))

    def __iter__(self) -> Iterator[Any]:
        yield from self._deliver(None, None)  # the epoch begins with its first batch, not with `iter`

    def epoch(self, epoch: int, start: int | None = None) -> Iterator[Any]:
        """Return an iterator over this process's batches of one epoch, in order by default.

        Each is a `tiering.loader.Batch`, or of the adapter's library.

        Parameters
        ----------
        epoch
            Number of the epoch, 0 or more.
        start
            Number of this process's batches to skip, 0 to ``len(loader)``; their rows are not read. By default 0, or in
            the epoch of a loaded state the batches that were delivered.

        Raises
        ------
        InputError
            If `epoch` is no whole number, or `start` is beyond the epoch.
        StageError
            In the consumer's loop, if sampling or extraction fails in the background; its cause is the error itself.
        """
        if start is not None:
            start = whole_number(start, 0, len(self) + 1, "start", f" from 0 to {len(self)}, the batches of an epoch")
        return self._deliver(key_word(epoch, "epoch"), start)

    def state_dict(self) -> dict[str, Any]:
        """Return the epoch begun last, the batches delivered in it, and the options that batches depend on.

        A batch counts once the consumer has it; after the last one the state is at the start of the next epoch. Plain
        types, a few KiB. The first call hashes the ids of the seeds or links.
        """
        return self._position.save(self.rank, self._about_batches)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume after the batches that a state counts, in the next ``for batch in loader`` or ``epoch(e)``.

        Later epochs are whole. With another world size the epoch resumes at the next whole round of batches.
        `InputError`: this is no state, or a loader's whose batches differ (layout, seed, batch size, split, ...).
        """
        self._position = self._next = Position.load(state, self.rank, self._about_batches, len(self))

    @cached_property
    def _about_batches(self) -> dict[str, str]:
        """Options that batches depend on, as text by name."""
        return describe_batches(self.artifact, self.options, self.targets)

    def _deliver(self, epoch: int | None, start: int | None) -> Iterator[Any]:
        """Yield the batches of an epoch, of the next one by default, from `start` or from a loaded position on."""
        position = self._next
        if epoch is None:
            self._next = Position(position.epoch + 1)
        elif start is None and epoch == position.epoch:
            self._next = Position(epoch)
        else:
            position = Position(epoch, start or 0)
        self._position, epoch = position, position.epoch
        with self._times.epoch():
            plan = self._plans.pop(epoch, None) or self.targets.plan(epoch)
            self._plans.clear()
            share = self.rank.batches(len(plan))
            # More than once only where the page cache loses the rows that it had.
            while position.epoch == epoch and (order := [share[k] for k in position.remaining(len(share))]):
                yield from self._run(plan, order, position)

    def __call__(self, index: Any) -> Any:
        """Return the batch of the seeds or links at positions, as PyG's loaders do, with the epoch 0 and number 0."""
        with self._times.epoch():
            (batch,) = self._run(self.targets.plan(0, id_array(as_array(index), "positions")), [0], Position())
        return batch

    def _run(self, plan: Plan, order: Sequence[int], position: Position) -> Iterator[Any]:
        """Yield the batches of a plan that `order` names, and count them in `position`."""
        batches, epoch, count = self._batches, plan.epoch, len(self.rank.batches(len(plan)))
        numbers = [batch // self.rank.world_size for batch in order]
        ahead = int(self.options.pipeline.workers + self.options.pipeline.prefetch)
        with batches.stages(plan, epoch, order) as (first, *rest):

            def checked(place: int) -> Any:
                check_mapped(self._mapped)
                return first.run(place)

            stages = [replace(first, run=checked), *rest]
            in_order = self.options.pipeline.in_order
            ready = run_stages(numbers, stages, ahead, f"epoch {epoch}, batch", self._times, in_order)
            shown = progress(len(order), f"epoch {epoch}", "batch", watched=self.options.pipeline.progress)

            def received(numbered: tuple[int, Any]) -> Any:
                bar.update()
                if not bar.disable and self._times.batches % _LINE == 0:
                    bar.set_postfix_str(self.stats().line())
                batch = batches.receive(numbered[1])
                position.deliver(numbered[0], count)
                return batch

            def next_ready() -> Any:
                lost = self.lookahead is not None and self.lookahead.lost()
                return ready if lost else next(ready, ready)

            with shown as bar, closing(ready):  # type: ignore[type-var]
                # Nothing here holds a batch that the consumer is done with.
                yield from map(received, iter(next_ready, ready))

    def reset_counters(self) -> None:
        """Begin counting rows, bytes and seconds at zero, in every table, too."""
        self._times.reset()
        if self.windows is not None:
            self.windows.reset()
        if self.lookahead is not None and self.lookahead.buffer is not None:
            self.lookahead.buffer.reset_counters()
        for source in (*self.features.values(), *self.edge_features.values()):
            if isinstance(source, FeatureRows):
                source.reset_counters()

    def counters(self) -> dict[str, dict[str, Any]]:
        """Return the counters of every table by node type or key of its relation, JSON types only."""
        tables = {**self.features, **{relation_key(relation): rows for relation, rows in self.edge_features.items()}}
        return {t: rows.counters.as_dict() for t, rows in tables.items() if isinstance(rows, FeatureRows)}

    def stats(self) -> LoaderStats:
        """Return where rows came from and which stage training waited for, since the begin or `reset_counters`.

        Loaders of one layout with the same options of reading share tables and buffer, and with them the counts of
        rows.
        """
        ahead = self.lookahead
        buffer = None if ahead is None or ahead.buffer is None else ahead.buffer.counters()
        lists = None if self.windows is None else self.windows.as_dict()
        return collect(self._times, self.counters(), buffer, lists)

    def _check_dtype(self) -> None:
        """Refuse a dtype that a table is not delivered as, before any table is loaded."""
        artifact, dtype, features = self.artifact, self.options.reading.dtype, self.options.features
        if dtype is not None and features is not None and not isinstance(features, str):
            raise InputError(
                f"dtype: rows of your own tables are not converted, found {dtype!r}; omit dtype, or give "
                "features='tiers'"
            )
        for table in [] if features is None else artifact.feature_types:
            Delivery.of(artifact, artifact.type_layout(table), dtype)

    def _find_features(self) -> dict[str, FeatureSource]:
        features, artifact, reading = self.options.features, self.artifact, self._reading()
        if features is None:
            return {}
        if features == "memory":
            return {t: TieredFeatures(artifact, t, reading, preloaded=True) for t in artifact.feature_types}
        if not isinstance(features, str) or features != "tiers":
            return _user_features(features, artifact.graph.node_types)
        where = self.options.device
        group = host_group(where.peers, self.rank)
        rows: dict[str, FeatureSource] = {
            t: self.layout.open_table(t, reading, where, group=group) for t in artifact.feature_types
        }
        cold = [t for t in rows if artifact.type_layout(t).rows("ssd")]
        if not cold or self.options.memory.memory == "tiers":
            return rows
        gpu, plan = self._gpu_sampler, self._plans[0]
        kept = None if gpu is None else int(_KEPT_SHARE * cuda.free_bytes(gpu.device.index))

        largest: int | None = getattr(self.targets, "largest", None)

        def draw(windows: ListWindows | None) -> SampledBatch:
            seeds = plan.seeds_of(largest or 0)
            key: dict[str, Any] = {"epoch": 0, "positions": self._edge_positions}
            if windows is not None:
                return windows.sample(self.node_sampler, [seeds], [0], 1, **key)[0][0]
            return self.node_sampler.sample(seeds[0], batch=0, seed_time=seeds[1], **key)

        drives = getattr(rows[cold[0]], "drives", None)
        group = group if drives is None else None  # each process has drives of its own
        find = self._find_windows
        decision = decide_memory(artifact, self.options, find, draw, cold, self.rank, group, repr(self.targets), kept)
        self._decision, self.windows = decision, decision.windows
        if largest is not None:  # in-lists are read once, front to back: no memory is kept for them
            decision = replace(decision, mapped_bytes=0)
        if decision.preload:
            preloaded = {t: self.layout.open_table(t, reading, where, preloaded=True, group=group) for t in cold}
            return {**rows, **preloaded}
        tables_read = {t: cast("FeatureRows", rows[t]) for t in cold}
        self.lookahead = Lookahead(artifact, tables_read, self.options, decision, self.layout.buffers, drives)
        return rows

    def _find_windows(self, left: int, page_cache: int | None = None) -> ListWindows | None:
        """Return the windows of batches sampled on the host; inference reads lists once, front to back."""
        if self._gpu_sampler is not None or hasattr(self.targets, "largest"):
            return None
        return ListWindows.find(self.node_sampler, left, page_cache)

    def _reading(self) -> ReadOptions:
        """Return the options of reading, with the depth that a model of the disks gives."""
        reading, speed = self.options.reading, self.options.memory.speed
        if speed is None or speed.latency is None:
            return reading
        return replace(reading, depth=find_depth(self.artifact, reading, speed).depth)

    @property
    def queue_depth(self) -> QueueDepth | None:
        """Reads in flight for each stripe file; ``None`` where no rows are read from them, or not yet."""
        tables = [*self.features.values(), *self.edge_features.values()]
        if self.lookahead is not None:
            return self.lookahead.depth
        if not any(isinstance(rows, FeatureRows) and rows.reader is not None for rows in tables):
            return None
        return find_depth(self.artifact, self.options.reading, self.options.memory.speed)

    def lists_speed(self) -> DiskSpeed | None:
        """Return the speed of the disk that windows read neighbor lists from, measured unless it is known.

        ``None`` where memory holds the lists.
        """
        layout, windows = self.artifact, self.windows
        if windows is None:
            return None
        return measured_speed([Path(file) for file in windows.files.files if file], layout.path.absolute().parent)

    def _find_edge_features(self) -> EdgeRows:
        """Return the tables of edges' features, if batches or the adapter take them."""
        artifact, asked = self.artifact, self.options.pipeline.edge_features
        relations = artifact.edge_feature_relations
        if asked and not relations:
            raise InputError(
                f"edge_features: no edges have features in the tiers of {artifact.path}; import a graph with "
                "edge_feat.npy and lay it out with --edge-features auto, or omit edge_features"
            )
        if not asked and EDGE_FEATURES not in self._edge_names:
            return {}
        where, reading = self.options.device, self._reading()
        group = host_group(where.peers, self.rank)
        return {r: self.layout.open_table(relation_key(r), reading, where, group=group) for r in relations}

    def _find_gpu_sampler(self) -> GpuSampler | None:
        """Return the sampler on the GPU; ``None`` where the host samples."""
        where, pipeline = self.options.device, self.options.pipeline
        if where.index is None and pipeline.sample_on == "gpu":
            raise CapabilityError("sample_on='gpu': not supported with device='cpu'; use sample_on='auto'")
        if where.index is None or pipeline.sample_on == "cpu":
            return None
        rule, about = self.node_sampler.rule, self.node_sampler.subgraphs
        if rule not in GpuSampler.RULES or about.disjoint or about.subgraph_type != "directional":
            if pipeline.sample_on == "auto":
                return None
            what = f"sampler {rule!r} runs" if rule not in GpuSampler.RULES else "time, disjoint and subgraph_type run"
            raise CapabilityError(
                f"sample_on='gpu': {what} only on the host; use sample_on='auto': its batches are copied to the GPU"
            )
        device, group = gpu_device.open_device(where.index), find_group(where.peers)
        artifact, positions = self.artifact, self._edge_positions
        lists = {relation: artifact.adjacency_prefix(relation) for relation in artifact.graph.relations}
        return GpuSampler(artifact.graph, lists, self.node_sampler, device, group, positions, where.max_sms)

    def _find_source(self) -> HostBatches | GpuBatches:
        graph, where, pipeline = self.artifact.graph, self.options.device, self.options.pipeline
        labels = checked_labels(graph, self.node_type) if self.options.links is None else None
        device = None if where.index is None else gpu_device.open_device(where.index)
        own = self.edge_features if pipeline.edge_features else {}
        source = BatchSource(graph, self.targets, {r: self.edge_features.get(r) for r in self.relations}, device)
        adapter = None if self._adapted is None else self._adapted.make_adapter(self._adapted, source)
        sampler, workers = self._gpu_sampler or self.node_sampler, int(pipeline.workers)
        common = (
            sampler, self.features, labels, self.node_type, workers, self.lookahead, self.windows, self._edge_positions,
        )  # fmt: skip
        if device is None:
            return HostBatches(*common, adapter, own, self._times, pipeline.in_order)
        return GpuBatches(*common, adapter, own, self._times, device)

    def _check_order(self) -> None:
        """Say, where batches are to come as they are ready, that something makes them one after the other."""
        hindrance = (
            "a GPU makes one batch after the other" if self.options.device.index is not None
            else "processes that share a buffer take rows in that order; with memory='tiers' each batch is read by "
                 "itself"
            if self.lookahead is not None and self.lookahead.in_turn and self._adapted is None
            else "one thread makes them; give workers of 2 or more" if self.options.pipeline.workers == 1
            else ""
        )  # fmt: skip
        if hindrance and not self.options.pipeline.in_order:
            warn_once(f"in_order=False has no effect: batches come in order, because {hindrance}")

    def describe(self) -> list[Part]:
        """Return the loader's options and its statistics so far."""
        sampler = self.node_sampler
        about = {
            "loader": f"{self.targets!r} of {self.artifact.path}",
            "batches": f"{len(self)} of {self.batch_size}",
            "sampler": f"{self.sampling.sampler}, fanouts {sampler.fanouts}, frontier {sampler.frontier}",
            "arrive on": self.options.device.device,
            "rows": self._rows_from(),
        }
        return [Fields(about), *self.stats().describe()]

    def _rows_from(self) -> str:
        features = self.options.features
        if not isinstance(features, str):
            return "none: batches have the structure only" if features is None else "from your own tables"
        if self.lookahead is not None:
            chosen = "" if self.lookahead.choice is None else f", {self.lookahead.choice}"
            return f"from the tiers; those on SSD read ahead of the batches{chosen}"
        alone = features == "tiers" and self.options.memory.memory == "tiers"
        return f"from the tiers; those on SSD read {'by each batch' if alone else 'into memory first'}"

    def __repr__(self) -> str:
        return (
            f"<Loader {self.targets!r}, {len(self)} batches of {self.batch_size}, sampler {self.sampling.sampler}, "
            f"fanouts {self.node_sampler.fanouts}, frontier {self.node_sampler.frontier}>"
        )


def _user_features(features: Any, types: list[str]) -> dict[str, FeatureSource]:
    if isinstance(features, str):
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
