"""Batches made on a GPU, ahead of training and on streams of their own: the CPU's batches, bit for bit."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.errors import DeviceError, InputError, RefusedError
from tiering.formats.graph import Graph
from tiering.loader.batches.batch import Batch, about_targets, rows_of_edges, sampled_batch
from tiering.loader.batches.host import BatchMaker
from tiering.loader.batches.lookahead import GpuSample, RowsAhead, sampling_stage
from tiering.loader.batches.pipeline import PipelineStage
from tiering.loader.batches.tensors import tensors_in
from tiering.loader.gpu.device import Device, PinnedBuffer, auto_sms, check_process, parse_sms, pinned_address
from tiering.loader.gpu.memory import Prefixes, load_adjacency
from tiering.loader.gpu.rows import GpuFeatures, SlotRows
from tiering.loader.options import FeatureSource
from tiering.loader.processes.peers import PeerGroup
from tiering.loader.tables.ssd_buffer import NO_SLOT
from tiering.loader.targets import Plan
from tiering.sampling import SampledBatch, Sampler

if TYPE_CHECKING:
    import torch


Ids = npt.NDArray[np.int64]


class GpuSampler:
    """The GPU's version of a CPU `sampler`, which makes the same batches, and explains errors; threads take turns.

    Memory, method and what the host waits for: ``ext/cuda/include/tiering/cuda/sampler.hpp``.
    """

    RULES = ("uniform", "replacement", "weighted")  # random walks and layers run on the host

    def __init__(
        self,
        graph: Graph,
        prefixes: Prefixes,
        sampler: Sampler,
        device: Device,
        group: PeerGroup | None = None,
        edge_positions: bool = False,
        max_sms: int | str = "auto",
    ) -> None:
        self.device, self.host, self.edge_positions = device, sampler, edge_positions
        self.stream = device.stream()  # stream that batches are sampled on
        self._path = graph.path
        self._adjacency = load_adjacency(graph, prefixes, device, sampler.rule == "weighted", group)
        self.columns, counts, sms = self._adjacency.columns, graph.num_nodes, parse_sms(max_sms)
        reads_host = any(columns < counts(r[2]) for r, columns in self.columns.items())
        with cuda.device_errors(f"{graph.path}: sampling on {device.name}"):
            options = (
                device.index, [counts(t) for t in sampler.node_types], self._adjacency.relations, sampler.fanouts,
                sampler.frontier == "new", sampler.rule, self._adjacency.keys, sampler.seed, edge_positions,
                auto_sms(device, reads_host) if sms is None else sms,
            )  # fmt: skip
            self._native = cuda.with_room(lambda: cuda.Sampler(*options))
        self._seeds = {t: PinnedBuffer(device.index, np.int64, f"seeds of type {t!r}") for t in sampler.node_types}
        self._fetched = PinnedBuffer(device.index, np.int64, f"{graph.path}: ids of a batch")
        self._lock = threading.Lock()

    def sample(self, seeds: Mapping[str, Ids], *, epoch: int = 0, batch: int = 0) -> tuple[Batch, cuda.Event]:
        """Sample one batch; returns nodes and edges on the GPU, and the event after which they are complete."""
        advice = "use smaller batches or fanouts, or make the layout's gpu tier smaller"
        what = f"{self._path}: sampling batch {batch} on {self.device.name}"
        with self._lock, cuda.device_errors(what, advice):
            return self._sample(seeds, epoch, batch)

    def fetch_ids(self, batch: Batch, types: Iterable[str]) -> dict[str, Ids]:
        """Copy the ids of a batch that was sampled here to host memory, waiting for no other stream."""
        what = f"{self._path}: ids of batch {batch.index} on {self.device.name}"
        with self._lock, cuda.device_errors(what):
            nodes = {t: batch.nodes[t] for t in types}
            self._fetched.reserve(sum(map(len, nodes.values())))
            begin, fetched = 0, {}
            for t, ids in nodes.items():
                into = self._fetched.address + 8 * begin
                cuda.copy(self.device.index, into, ids.data_ptr(), 8 * len(ids), self.stream.cuda_stream)
                fetched[t] = self._fetched.array[begin : begin + len(ids)]
                begin += len(ids)
            copied = cuda.Event(self.device.index)
            copied.record(self.stream.cuda_stream)
            copied.wait()
            return {t: ids.copy() for t, ids in fetched.items()}

    def _sample(self, seeds: Mapping[str, Ids], epoch: int, batch: int) -> tuple[Batch, cuda.Event]:
        try:
            given = [self._upload(t, seeds.get(t)) for t in self.host.node_types]
            cuda.with_room(lambda: self._native.start(given, epoch, batch, self.stream.cuda_stream))
            nodes, edges = self._native.finish()
        except ValueError as error:
            self.host.sample(dict(seeds), epoch=epoch, batch=batch)  # says what is wrong, which entry and what it holds
            raise DeviceError(
                f"{self._path}: the GPU found invalid data ({error}), but the host's copy of the graph is valid; is "
                f"{self.device.name} damaged, or was its memory overwritten?"
            ) from None
        seed_type = next((t for t, ids in seeds.items() if ids.size), self.host.node_types[0])
        return self._write(nodes, edges, Batch(epoch, batch, seed_type, {}, [], [], frontier=self.host.frontier))

    def _upload(self, node_type: str, seeds: Ids | None) -> tuple[int, int]:
        """Copy seeds to where the GPU reads them; a batch is finished before the next overwrites them."""
        if seeds is None or not seeds.size:
            return 0, 0
        buffer = self._seeds[node_type]
        buffer.reserve(seeds.size)
        buffer.array[: seeds.size] = seeds
        return buffer.address, seeds.size

    def _write(self, nodes: list[list[int]], edges: list[list[int]], batch: Batch) -> tuple[Batch, cuda.Event]:
        import torch

        host, handle = self.host, self.stream.cuda_stream
        ids: dict[str, torch.Tensor] = {}
        hops: list[dict[Relation, torch.Tensor]] = []
        positions: list[dict[Relation, torch.Tensor]] = [{} for _ in edges]
        with self.device.on(self.stream):
            for place, node_type in enumerate(host.node_types):
                ids[node_type] = self.device.empty((nodes[-1][place],), torch.int64)
                self._native.write_nodes(place, ids[node_type].data_ptr(), handle)
            for hop, counts in enumerate(edges):
                hops.append({})
                for place, relation in enumerate(host.edge_relations):
                    hops[hop][relation] = self.device.empty((2, counts[place]), torch.int64)
                    self._native.write_edges(hop, place, hops[hop][relation].data_ptr(), handle)
                    if self.edge_positions:
                        positions[hop][relation] = self.device.empty((counts[place],), torch.int64)
                        self._native.write_positions(hop, place, positions[hop][relation].data_ptr(), handle)
        ready = cuda.Event(self.device.index)
        ready.record(handle)
        known = [dict(zip(host.node_types, counts, strict=True)) for counts in nodes]
        weights: list[Any] = [{} for _ in edges]
        return replace(batch, nodes=ids, num_nodes=known, hops=hops, weights=weights, positions=positions), ready


class GpuSlots:
    """Buffer slots that a GPU reads in one epoch; a thread releases them once the kernels that read them have ended."""

    def __init__(self, buffer: RowsAhead, features: Mapping[str, GpuFeatures], device: Device) -> None:
        self._buffer, self._device, self._what = buffer, device, str(buffer.memory.path)
        start = pinned_address(buffer.memory, device.index, self._what)
        self._tables = {t: features[t].table_over(start + at) for t, at in buffer.origins.items()}
        self._reading: SimpleQueue[tuple[int, int, cuda.Event] | None] = SimpleQueue()  # none: the epoch is over
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._release_all, name="tiering-slots", daemon=True)
        self._thread.start()

    def parts(self, batch: int, ids: Mapping[str, Ids], stream: torch.cuda.Stream) -> Iterator[dict[str, SlotRows]]:
        """Yield the parts of a batch, once its rows are in the buffer, for work on `stream`; the first has all ids."""
        part, last = 0, False
        while not last:
            slots, last = self._buffer.slots(batch, part, ids)
            if self._error is not None:
                raise self._error
            yield {t: self._rows(t, ids[t], slots[t], part) for t in self._tables}
            ended = cuda.Event(self._device.index)
            ended.record(stream.cuda_stream)
            self.release_after(batch, part, ended)
            part += 1

    def release_after(self, batch: int, part: int, ended: cuda.Event) -> None:
        """Release the slots of a part after the event `ended`."""
        self._reading.put((batch, part, ended))

    def finish(self) -> None:
        """Release all slots, once no kernel reads them."""
        self._reading.put(None)
        self._thread.join()

    def _rows(self, node_type: str, ids: Ids, slots: npt.NDArray[np.uint32], part: int) -> SlotRows:
        upload, table = self._device.upload, self._tables[node_type]
        if part == 0:
            return SlotRows(table, upload(slots.view(np.int32)))
        at = np.flatnonzero(slots != NO_SLOT)
        return SlotRows(table, upload(slots[at].view(np.int32)), upload(ids[at]), upload(at.astype(np.int32)))

    def _release_all(self) -> None:
        self._device.begin_thread()
        while (reading := self._reading.get()) is not None:
            batch, part, ended = reading
            try:
                with cuda.device_errors(self._what):
                    ended.wait()
            except Exception as error:  # the GPU has failed: nobody reads any more, and `parts` raises
                self._error = self._error or error
            with suppress(InputError, RefusedError):  # the process ends, and with it the epoch
                self._buffer.release(batch, part)


@dataclass
class GpuBatches(BatchMaker):
    """The source of batches that arrive on a GPU; samples of the host are copied, and rows of other tables."""

    device: Device

    def __post_init__(self) -> None:
        self._stream, self._process = self.device.stream(urgent=True), os.getpid()

    @contextmanager
    def stages(self, plan: Plan, epoch: int, order: Sequence[int]) -> Iterator[list[PipelineStage]]:
        """Yield the stages: sampling (one batch at a time on the GPU, `workers` on the host), then extraction."""
        check_process(self._process)
        types = [] if self.lookahead is None else self.lookahead.tables.types

        def draw(index: int) -> GpuSample | SampledBatch:
            self.device.begin_thread()
            sampler, seeds = self.sampler, plan[index]
            if not isinstance(sampler, GpuSampler):
                return on_host(index)
            with self.times.work("sampling"):
                batch, ready = sampler.sample(seeds, epoch=epoch, batch=index)
                batch = replace(batch, seed_type=self.seed_type)
                return GpuSample(batch, ready, seeds[self.seed_type], sampler.fetch_ids(batch, types) if types else {})

        workers = 1 if isinstance(self.sampler, GpuSampler) else self.workers
        with (
            self.sampling(plan, epoch, order) as on_host,
            sampling_stage(self.lookahead, epoch, order, len(plan), draw, workers) as (sampling, ahead),
        ):
            slots: GpuSlots | None = None
            if ahead is not None and self.lookahead is not None and self.lookahead.buffer is not None:
                tables = {t: source for t, source in self.features.items() if isinstance(source, GpuFeatures)}
                slots = GpuSlots(self.lookahead.buffer, tables, self.device)
            try:
                yield [
                    sampling,
                    PipelineStage("extraction", lambda drawn: self._extract(drawn[0], drawn[1], plan, slots)),
                ]
            finally:
                if slots is not None:  # other rows may be read into slots that a kernel still reads
                    try:
                        with cuda.device_errors(f"the end of epoch {epoch} on {self.device.name}"):
                            self._stream.synchronize()
                    finally:
                        slots.finish()

    def receive(self, ready: tuple[Any, cuda.Event]) -> Any:
        """Let the caller's stream, not the host, wait until a batch is complete, and return the batch."""
        batch, complete = ready
        self.device.wait(complete)
        self.device.keep(batch.tensors() if self.adapter is None else tensors_in(batch, self.adapter.contents))
        return batch

    def _extract(
        self, place: int, sampled: GpuSample | SampledBatch, plan: Plan, slots: GpuSlots | None
    ) -> tuple[Any, cuda.Event]:
        import torch

        stream = self._stream
        self.device.begin_thread()
        with self.device.on(stream):
            if isinstance(sampled, SampledBatch):
                batch = sampled_batch(sampled, self.seed_type, self.sampler.frontier, self.device.send)
                seeds = sampled.seeds[self.seed_type]
            else:
                batch, seeds = sampled.batch, sampled.seeds
                cuda.wait_event(stream.cuda_stream, sampled.ready)
                self.device.keep(batch.tensors(), stream)
            features: dict[str, torch.Tensor] = {}
            nodes, rows = batch.nodes, {}
            if isinstance(sampled, SampledBatch) and sampled.instances:
                sent = {t: [self.device.send(torch.from_numpy(part)) for part in of] for t, of in sampled.rows.items()}
                nodes, rows = {t: of[0] for t, of in sent.items()}, {t: of[1] for t, of in sent.items()}
            for ahead in [{}] if slots is None else slots.parts(place, sampled.unique_nodes, stream):
                if not features:
                    features = {t: self._rows(s, nodes[t], ahead.get(t)) for t, s in self.features.items()}
                    continue
                for t, slot_rows in ahead.items():
                    table = cast("GpuFeatures", self.features[t])
                    table.gather_part(slot_rows, features[t].data_ptr(), stream.cuda_stream)
            features = {t: self._spread(found, rows[t]) if t in rows else found for t, found in features.items()}
            y = self._labels_of(seeds, batch.num_nodes[0][self.seed_type])
            of_edges = rows_of_edges(batch, self.edge_rows, lambda source, ids: self._rows(source, ids, None))
            batch = replace(batch, features=features, y=y, edge_features=of_edges)
            batch = about_targets(plan, batch, self.device.upload)
            made = batch if self.adapter is None else self.adapter.adapt(batch)
        complete = cuda.Event(self.device.index)
        complete.record(stream.cuda_stream)
        return made, complete

    def _rows(self, source: FeatureSource, nodes: torch.Tensor, ahead: SlotRows | None) -> torch.Tensor:
        import torch

        if not isinstance(source, GpuFeatures):
            rows = source.gather(nodes.cpu())
            return rows if self.device.has(rows) else self.device.send(rows)
        out = self.device.empty((len(nodes), source.dim), getattr(torch, source.dtype))
        source.gather_into(nodes.data_ptr(), len(nodes), out.data_ptr(), self._stream.cuda_stream, ahead=ahead)
        return out

    def _spread(self, rows: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        """Return the row at each place, of rows in the memory of the GPU."""
        out = self.device.empty((len(places), *rows.shape[1:]), rows.dtype)
        if len(rows):
            ends, row_bytes = [len(rows)] * 4, rows.nbytes // len(rows)
            table = cuda.RowTable(self.device.index, row_bytes, ends, rows.data_ptr(), [], 0, 0)
            table.gather(places.data_ptr(), len(places), out.data_ptr(), self._stream.cuda_stream)
        return out

    def _labels_of(self, seeds: Ids, unique: int) -> torch.Tensor | None:
        if self.labels is None:
            return None
        if unique != seeds.size:  # a seed that came twice counts once, where it came first
            seeds = seeds[np.sort(np.unique(seeds, return_index=True)[1])]
        return self.device.upload(np.asarray(self.labels[seeds]))
