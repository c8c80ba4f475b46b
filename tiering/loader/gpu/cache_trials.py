"""Passes over batches of training with caches of given sizes: sampling with some lists in the memory of the GPU, and
gathering with some rows there; and what each pass misses.

A cache is the front of what it can hold, as in a layout. Sizes are given as shares of what passes read: those served.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.artifacts.manifest import Relation
from tiering.errors import InputError
from tiering.formats.adjacency_prefix import SUM_BYTES, AdjacencyPrefix, ListBytes
from tiering.formats.graph import Graph
from tiering.loader.gpu.adjacency import GpuAdjacency, load_adjacency
from tiering.loader.gpu.batches import GpuSampler
from tiering.loader.gpu.device import Device, auto_sms, pinned_address
from tiering.loader.resident import SharedBlock, anonymous
from tiering.memory import Budget
from tiering.sampling import NeighborSampler, SampledBatch, list_read_places

Ids = npt.NDArray[np.int64]
TIMED_BATCHES = 16
"""Batches of a pass at the most."""
ROW_BYTES = 1 << 30
"""Of feature rows, so many bytes are held for the trials at the most."""
GPU_SHARE = 1 / 4
"""Share of the GPU's free memory that lists, or rows, take for the trials at the most."""


_NOTHING: cuda.Part = (0, 0, 0, 0, 0)


@dataclass(frozen=True)
class Trial:
    """A pass with one cache."""

    run: Callable[[], None]
    """Does it, and returns when the GPU is done."""
    misses: tuple[float, ...]
    """What is read from host memory in a pass: of lists their number, and places looked at; of rows their number."""


def draw_batches(
    graph: Graph, sampler: NeighborSampler, batch_size: int, rng: np.random.Generator
) -> list[SampledBatch]:
    """Up to `TIMED_BATCHES` batches as the host samples them, without edges.

    Seeds are training nodes of the type with most of them; without a split, any nodes that have lists.
    """
    splits = {t: graph.split("train", t) for t in graph.node_types if "train" in graph.splits(t)}
    if not any(ids.size for ids in splits.values()):
        splits = {t: np.arange(graph.num_nodes(t)) for t in {relation[2] for relation in graph.relations}}
    node_type = max(splits, key=lambda t: (splits[t].size, t), default="")
    if not node_type or not splits[node_type].size:
        raise InputError(f"fit: {graph.path} has no nodes to sample batches from; leave --fit out for assumed costs")
    ids = rng.permutation(splits[node_type])[: TIMED_BATCHES * batch_size].astype(np.int64)
    samples = []
    for number, begin in enumerate(range(0, ids.size, batch_size)):
        sample = sampler.sample({node_type: ids[begin : begin + batch_size]}, epoch=0, batch=number)
        samples.append(replace(sample, hops=[]))
    return samples


@dataclass(frozen=True)
class _PlacedLists:
    """Stands for a layout that holds as many lists as fit into the memory of the GPU."""

    path: Path
    graph: Graph
    digest: str
    prefixes: dict[Relation, AdjacencyPrefix]

    def adjacency_prefix(self, relation: Relation) -> AdjacencyPrefix:
        """Of one relation."""
        return self.prefixes[relation]


class ListTrials:
    """Sampling batches with more or fewer adjacency lists in the memory of the GPU.

    `samples` are the batches as the host samples them. All lists lie in page-locked host memory, and on the GPU as many
    of the first as fit; a smaller cache is a front of those.
    """

    def __init__(
        self,
        graph: Graph,
        sampler: NeighborSampler,
        device: Device,
        samples: Sequence[SampledBatch],
        memory: Budget,
    ) -> None:
        self._graph, self._host, self._device, self._samples = graph, sampler, device, samples
        weighted = sampler.rule == "weighted"
        held = sum(indptr.nbytes + indices.nbytes for indptr, indices in map(graph.csc, graph.relations))
        sums = SUM_BYTES * sum(graph.num_edges(relation) for relation in graph.relations) if weighted else 0
        memory.require(held + sums, "fit: adjacency lists in page-locked memory")
        most = largest_prefixes(graph, weighted, int(GPU_SHARE * cuda.free_bytes(device.index)))
        placed = _PlacedLists(Path(graph.path), graph, f"{graph.digest}, fit", most)
        self._placed, self._most = placed, most
        self._adjacency: GpuAdjacency | None = load_adjacency(placed, device, weighted)

    @property
    def kinds(self) -> int:
        """Caches that have sizes of their own: one for each relation."""
        return len(self._graph.relations)

    def close(self) -> None:
        """Let go of the lists, which go with the last trial."""
        self._adjacency = None

    def seconds_of_a_batch(self) -> float:
        """Of the first batch with all lists in host memory, the second time that it is sampled."""
        return _second_run(self.trial(np.zeros(self.kinds), 1).run)

    def trial(self, shares: npt.NDArray[np.float64], batches: int) -> Trial:
        """A pass over the first `batches`; of the reads of each relation's lists the GPU serves its one of `shares`, as
        far as it has room for them.
        """
        fanouts, columns, missed = self._host.fanouts, {}, np.zeros(2)
        for index, relation in enumerate(self._graph.relations):
            reads = list_reads(self._host, self._samples[:batches], relation)
            end = serving(shares[index], reads, self._graph.num_nodes(relation[2]))
            columns[relation] = end = min(end, self._most[relation].columns)
            far, indptr = reads[reads >= end], self._graph.csc(relation)[0]
            of_relation = [hop[index] for hop in fanouts]
            missed += far.size, list_read_places(indptr[far + 1] - indptr[far], self._host.rule, of_relation).sum()
        assert self._adjacency is not None
        adjacency = narrowed(self._adjacency, self._graph, columns)
        # As many multiprocessors for all caches, so that what a pass misses alone makes the difference.
        sms = auto_sms(self._device, reads_host=True)
        sampler = GpuSampler(self._placed, self._host, self._device, max_sms=sms, adjacency=adjacency)
        return Trial(partial(self._sample, sampler, batches), (float(missed[0]), float(missed[1])))

    def _sample(self, sampler: GpuSampler, batches: int) -> None:
        for sample in self._samples[:batches]:
            sampler.sample(sample.seeds, batch=sample.batch)
        sampler.stream.synchronize()


def list_reads(sampler: NeighborSampler, samples: Sequence[SampledBatch], relation: Relation) -> Ids:
    """Columns of a relation whose lists batches read, once for each read."""
    place, node_type, reads = sampler.relations.index(relation), relation[2], [np.zeros(0, np.int64)]
    for sample in samples:
        known = [0, *(counts[node_type] for counts in sample.num_nodes)]
        for hop, fanouts in enumerate(sampler.fanouts):
            if fanouts[place]:
                first = known[hop] if sampler.frontier == "new" else 0
                reads.append(sample.nodes[node_type][first : known[hop + 1]])
    return np.concatenate(reads)


def largest_prefixes(graph: Graph, weights: bool, nbytes: int) -> dict[Relation, AdjacencyPrefix]:
    """All lists of each relation, or as many of the first as fit into its share of `nbytes`, by the size of all."""
    sizes = {relation: ListBytes.of_graph(graph, relation, weights) for relation in graph.relations}
    whole = {r: int(sizes[r].taken(graph.num_nodes(r[2]), graph.num_edges(r))) for r in graph.relations}
    scale, prefixes = min(1.0, nbytes / max(1, sum(whole.values()))), {}
    for relation, size in sizes.items():
        indptr = graph.csc(relation)[0]
        room = int(scale * whole[relation])

        def taken(columns: int, size: ListBytes = size, indptr: npt.NDArray[np.int64] = indptr) -> int:
            return int(size.taken(columns, int(indptr[columns])))

        columns = max(0, bisect.bisect_right(range(indptr.size), room, key=taken) - 1)
        prefixes[relation] = AdjacencyPrefix.of(columns, int(indptr[columns]), size)
    return prefixes


def narrowed(adjacency: GpuAdjacency, graph: Graph, columns: Mapping[Relation, int]) -> GpuAdjacency:
    """The same lists, of which only the first `columns` of each relation count as lying on the GPU."""
    made: list[cuda.Adjacency] = []
    for relation, entry in zip(graph.relations, adjacency.relations, strict=True):
        source, target, wide, _, _, local, _, host = entry
        count = columns[relation]
        part = (*local[:4], int(graph.csc(relation)[0][count])) if count else _NOTHING
        made.append((source, target, wide, count, count, part, [], host))
    keys: list[cuda.Keys] = []
    for node_type, (own, there, address, ids_wide) in zip(graph.node_types, adjacency.keys, strict=True):
        most = max((columns[relation] for relation in graph.relations if relation[2] == node_type), default=0)
        keys.append((own, min(there, most), address, ids_wide))
    nobody = dict.fromkeys(columns, 0)
    return replace(adjacency, relations=made, keys=keys, columns=dict(columns), peer_columns=nobody, owners=[adjacency])


class RowTrials:
    """Gathering rows of `row_bytes` with more or fewer of them in the memory of the GPU.

    The ids are those of nodes of `types` in the batches `samples`. The table has up to `ROW_BYTES`; ids beyond its end
    begin at its front again.
    """

    def __init__(
        self,
        graph: Graph,
        row_bytes: int,
        types: Sequence[str],
        samples: Sequence[SampledBatch],
        device: Device,
        memory: Budget,
    ) -> None:
        most = max(graph.num_nodes(t) for t in types)
        room = min(ROW_BYTES, int(GPU_SHARE * cuda.free_bytes(device.index)))
        self._rows, self._row_bytes, self._device = max(1, min(most, room // row_bytes)), row_bytes, device
        nbytes = self._rows * row_bytes
        memory.require(nbytes, f"fit: rows of {row_bytes} B in page-locked memory")
        what = f"fit: rows of {row_bytes} B"
        self._memory = SharedBlock(what, anonymous(nbytes))
        self._on_host = pinned_address(self._memory, device.index, what)
        self._ids = [np.concatenate([sample.nodes[t] for t in types]) % self._rows for sample in samples]
        with cuda.device_errors(what):
            self._on_gpu: cuda.DeviceMemory | None = cuda.allocate(device.index, nbytes)
            self._out: cuda.DeviceMemory | None = cuda.allocate(device.index, row_bytes * max(map(len, self._ids)))
            cuda.copy(device.index, self._on_gpu.address, self._on_host, nbytes, device.current())
        self._sent = [device.upload(ids) for ids in self._ids]
        self._done, self._requester = cuda.Event(device.index), cuda.RequestGatherer(device.index)
        self._sms = auto_sms(device, reads_host=True)

    kinds = 1
    """Caches that have sizes of their own."""

    def close(self) -> None:
        """Give the memory back; no trial can be run any more."""
        self._done.wait()
        self._on_gpu = self._out = None
        self._memory.registration = None

    def seconds_of_a_batch(self) -> float:
        """Of the first batch with all rows in host memory, the second time that it is gathered."""
        return _second_run(self.trial(np.zeros(self.kinds), 1).run)

    def trial(self, shares: npt.NDArray[np.float64], batches: int) -> Trial:
        """A pass over the first `batches`; of their reads the GPU serves the one share given."""
        reads = np.concatenate(self._ids[:batches])
        end = serving(shares[0], reads, self._rows)
        assert self._on_gpu is not None
        rest = self._on_host + end * self._row_bytes
        ends = [end, end, self._rows, self._rows]
        table = cuda.RowTable(self._device.index, self._row_bytes, ends, self._on_gpu.address, [], rest)
        return Trial(partial(self._gather, table, batches), (float((reads >= end).sum()),))

    def _gather(self, table: cuda.RowTable, batches: int) -> None:
        assert self._out is not None
        stream = self._device.current()
        with cuda.device_errors(f"fit: gathering rows of {self._row_bytes} B"):
            for ids in self._sent[:batches]:
                self._requester.prepare(table, ids.data_ptr(), len(ids), stream, by_address=True)
                self._requester.gather(table, self._out.address, stream, self._sms)
            self._done.record(stream)
            self._done.wait()


def serving(share: float, reads: Ids, count: int) -> int:
    """How many of the first of `count` things serve `share` of the reads; all for 1."""
    served = int(share * reads.size)
    if not 0 < served < reads.size:
        return count if served else 0
    return int(np.partition(reads, served)[served])


def _second_run(run: Callable[[], Any]) -> float:
    run()
    begun = time.perf_counter()
    run()
    return time.perf_counter() - begun
