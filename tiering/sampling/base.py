"""The base of all samplers, the batches they make, and counts of what these read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError, RefusedError
from tiering.formats.graph import damaged
from tiering.sampling.graph import Relation, SampledGraph, checked_csc, checked_node_keys, resolve_fanouts
from tiering.sampling.options import Fanout, Subgraphs
from tiering.sampling.plan import EpochPlan, IdArray, id_array, key_word
from tiering.sampling.plan import batches as cut_batches
from tiering.sampling.subgraphs import SampledTimes, both_ways
from tiering.text.units import parse_threads

Seeds = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""Node ids: an array where the graph has one node type, else a mapping from node type to array."""
FrontierRule = Literal["all", "new"]
_NONE: IdArray = np.empty(0, np.int64)


@dataclass(frozen=True)
class SampledEdges:
    """Edges sampled at one hop of one relation, grouped by destination in frontier order."""

    src: npt.NDArray[np.int32]
    """Shape (edges,): place of the source in ``nodes[source type]``."""
    dst: npt.NDArray[np.int32]
    """Shape (edges,): place of the destination in ``nodes[destination type]``; ascending. (A relation that became the
    mirror of another in a ``bidirectional`` batch has its order.)"""
    positions: IdArray | None = None
    """Shape (edges,): place of the edge in the relation's ``indices``, on request."""
    weights: npt.NDArray[np.float32] | None = None
    """Shape (edges,): weights that the sampler gives its edges; ``None`` where it gives none."""

    def __len__(self) -> int:
        return int(self.src.size)


@dataclass(frozen=True)
class SampledBatch:
    """One mini-batch: unique nodes in order of discovery, and edges by hop in local ids."""

    nodes: dict[str, IdArray]
    """Per node type: ids in order of discovery, seeds first; unique, in a disjoint batch within each instance."""
    num_nodes: list[dict[str, int]]
    """``num_nodes[h][t]``: nodes of type t known after h hops; entry 0 counts the seeds. hops + 1 entries."""
    hops: list[dict[Relation, SampledEdges]] = field(repr=False)
    """``hops[h][relation]``: edges sampled at hop h (0 = the seeds' own neighbors)."""
    epoch: int
    batch: int  # number of the batch in its epoch
    instances: dict[str, IdArray] = field(default_factory=dict, repr=False)
    """Per node type of a disjoint batch, shape (nodes,): the instance of each node, which is the number of its seed,
    counted type by type; empty for other batches."""
    seed_time: dict[str, npt.NDArray[Any]] = field(default_factory=dict, repr=False)
    """Per node type: the time of each seed; empty for a sampler without time."""
    subgraph_type: str = "directional"
    """Edges in `hops`; but for ``directional`` they are in one entry, which has no hop."""

    @cached_property
    def rows(self) -> dict[str, tuple[IdArray, IdArray]]:
        """Per node type of a disjoint batch: different ids, and shape (nodes,): the place of each node's id in them."""
        return {t: native.unique_ids(self.nodes[t], 1 + int(self.nodes[t].max(initial=0))) for t in self.instances}

    @property
    def unique_nodes(self) -> dict[str, IdArray]:
        """Per node type: different ids, in order of discovery; the rows that training reads."""
        return {t: ids for t, (ids, _) in self.rows.items()} if self.instances else self.nodes

    @property
    def seeds(self) -> dict[str, IdArray]:
        """Seeds per node type, in the order given: the first nodes of each list; unique unless disjoint."""
        return {t: ids[: self.num_nodes[0][t]] for t, ids in self.nodes.items()}

    @property
    def num_edges(self) -> int:
        """Edges sampled in all hops and relations."""
        return sum(len(edges) for hop in self.hops for edges in hop.values())

    @property
    def nbytes(self) -> int:
        """Memory of the arrays."""
        edges = [e for hop in self.hops for e in hop.values()]
        weights = sum(a.nbytes for e in edges for a in (e.weights, e.positions) if a is not None)
        nodes = sum(ids.nbytes for ids in (*self.nodes.values(), *self.instances.values()))
        return nodes + sum(e.src.nbytes + e.dst.nbytes for e in edges) + weights


@dataclass(frozen=True)
class ListFiles:
    """Files from which windows of batches read neighbor lists, and the windows' memory."""

    files: list[str]
    """Per relation, its ``indices`` as the whole content of a file; empty without edges."""
    times: list[str]
    """Per relation, the times that the sampler goes by, likewise; empty without times."""
    room: int
    """Bytes that the batches of a window may take together; one batch is sampled in any case."""


@dataclass(frozen=True)
class WindowReads:
    """Reads of neighbor lists for a window of batches."""

    batches: int = 0
    reads: int = 0
    nbytes: int = 0  # bytes of the reads, which are whole pages
    nanoseconds: int = 0  # wall time of the reads

    def __add__(self, other: WindowReads) -> WindowReads:
        return WindowReads(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass
class AccessCounts:
    """Numbers of reads of each node's feature row and of each adjacency list."""

    features: dict[str, IdArray]
    """Per node type, int64, shape (num_nodes,): +1 for every batch that contains the node."""
    adjacency: dict[Relation, IdArray]
    """Per relation, int64, shape (nodes of the destination type,): +1 every time the node's list is read."""

    @classmethod
    def zeros(cls, graph: SampledGraph) -> AccessCounts:
        """Return the counters of a graph, all 0."""
        return cls(
            {t: np.zeros(graph.num_nodes(t), np.int64) for t in graph.node_types},
            {r: np.zeros(graph.num_nodes(r[2]), np.int64) for r in graph.relations},
        )

    @property
    def total(self) -> int:
        """Feature accesses over all types."""
        return sum(int(counts.sum()) for counts in self.features.values())


class Sampler:
    """Base of the samplers: a batch is a pure function of the graph, the seeds and ``(seed, epoch, batch)``.

    Parameters: as for `NeighborSampler`, and what a rule of the core takes: its name, what the edges of a hop are
    grouped by where that is not the graph's relations, edge weights per relation, and for walks their number, length,
    probability of ending early, and metapaths as places of relations. `threads` prepare the rule (sums of weights).
    `subgraphs` says what the subgraph of a seed is.

    `sample` may be called from many threads at once; the interpreter lock is released. A batch needs about 40 bytes
    per unique node, and 8 per edge (16 with positions, 4 more with weights), in addition to the graph.
    """

    def __init__(
        self,
        graph: SampledGraph,
        fanouts: Sequence[Fanout],
        *,
        frontier: FrontierRule = "all",
        seed: int = 0,
        rule: str = "uniform",
        edge_relations: Sequence[Relation] | None = None,
        weights: Mapping[Relation, np.ndarray[Any, Any]] | None = None,
        walks: tuple[int, int, float, list[list[int]]] | None = None,
        threads: int | str | None = None,
        subgraphs: Subgraphs | None = None,
    ) -> None:
        if frontier not in ("all", "new"):
            raise InputError(f"frontier: expected 'all' or 'new', found {frontier!r}")
        self.graph = graph
        self.frontier = frontier
        self.rule = rule
        """Name of the rule in the core: a name of `tiering.sampling.SAMPLERS`; ``full`` is ``uniform`` there."""
        self.seed = key_word(seed, "seed")
        self.node_types = list(graph.node_types)
        self.relations = [cast(Relation, tuple(r)) for r in graph.relations]
        self.edge_relations = self.relations if edge_relations is None else list(edge_relations)
        self.fanouts = resolve_fanouts(self.edge_relations, fanouts)  # hop x edge relation
        self.subgraphs = subgraphs or Subgraphs()
        """Options of the subgraphs of seeds: disjoint, in time, with which edges."""
        self.subgraphs.check_rule(rule)
        time = self.subgraphs.time
        self.times = None if time is None else SampledTimes(graph, self.relations, time)
        """The times that neighbors are sampled by; ``None`` where they have none."""
        place = {t: i for i, t in enumerate(self.node_types)}
        given, workers = weights or {}, parse_threads(threads)
        relations = [
            (":".join(r), place[r[0]], place[r[2]], *checked_csc(graph, r), given.get(r)) for r in self.relations
        ]
        with self._explained():
            self._native = native.Sampler(
                type_names=[repr(t) for t in self.node_types],
                num_nodes=[graph.num_nodes(t) for t in self.node_types],
                relations=relations,
                fanouts=self.fanouts,
                frontier=frontier,
                node_keys=[checked_node_keys(graph, t) for t in self.node_types],
                seed=self.seed,
                rule=rule,
                walks=walks,
                threads=workers,
                subgraphs=self._native_subgraphs(),
            )

    def _native_subgraphs(self) -> tuple[bool, bool, bool, bool, int, list[Any]] | None:
        """Return disjoint, induced, times as float64, the newest only, window and times; ``None``: as ever."""
        about, times = self.subgraphs, self.times
        if not about.disjoint and about.subgraph_type != "induced":
            return None
        real, words = times is not None and times.dtype == np.float64, [] if times is None else times.words
        window = -1 if times is None else times.window(about.time_window)
        last, induced = about.temporal_strategy == "last", about.subgraph_type == "induced"
        return about.disjoint, induced, real, last, window, words

    def sample(
        self, seeds: Seeds, *, epoch: int = 0, batch: int = 0, positions: bool = False, seed_time: Seeds | None = None
    ) -> SampledBatch:
        """Sample one batch.

        Parameters
        ----------
        seeds
            Node ids to start from. One that comes twice counts once, where it came first; in disjoint batches it makes
            two instances.
        epoch, batch
            Key of the random numbers, 0 or more.
        positions
            Also return every edge's place in the relation's ``indices`` (to look up weights, edge ids).
        seed_time
            With time: the time of each seed, numbers or dates in the form of `seeds`; by default the time of the seed
            itself, where nodes have times.

        Raises
        ------
        InputError
            If a seed is no node of the graph, positions are requested where edges have none, or a seed time is missing,
            NaN, or not exact in the dtype and unit of the graph's times.
        """
        if positions:
            self.check_positions()
        lists, key = self._per_type(seeds, "seeds"), (key_word(epoch, "epoch"), key_word(batch, "batch"))
        times = self.seed_times(dict(zip(self.node_types, lists, strict=True)), seed_time)
        with self._explained():
            found = self._native.sample(lists, *key, positions, _words(times))
        return self._batch(found, epoch, batch, times)

    def sample_window(
        self, seeds: Sequence[tuple[Mapping[str, IdArray], Mapping[str, npt.NDArray[Any]] | None]],
        batches: Sequence[int], lists: ListFiles, size: int, *, epoch: int = 0, positions: bool = False,
    ) -> tuple[list[SampledBatch], int, WindowReads]:  # fmt: skip
        """Sample the first of some batches together, hop by hop: each page of the lists is read once a hop.

        Returns at most `size` batches, as many as `lists` has room for, each as `sample` returns it for its `seeds`,
        their times, and number; how many the next window has room for; and the reads.
        """
        ends = [np.cumsum([0, *(of.get(t, _NONE).size for of, _ in seeds)]) for t in self.node_types]
        ids = [np.concatenate([_NONE, *(of.get(t, _NONE) for of, _ in seeds)]) for t in self.node_types]
        times = [self.seed_times({t: of.get(t, _NONE) for t in self.node_types}, given) for of, given in seeds]
        words = [] if self.times is None else [np.concatenate(one) for one in zip(*map(_words, times), strict=True)]
        key = list(zip(ids, ends, strict=True)), key_word(epoch, "epoch"), np.array(batches, np.uint64).view(np.int64)
        with self._explained():
            done, size, reads, found = self._native.sample_window(
                *key, size, [], [], lists.files, lists.times, lists.room, "positions" if positions else "edges", words
            )
        keys = zip(found, zip(batches, times, strict=True), strict=False)
        made = [self._batch(each, epoch, *key) for each, key in keys]
        return made, size, WindowReads(done, *reads)

    def _batch(self, found: Any, epoch: int, batch: int, times: dict[str, npt.NDArray[Any]]) -> SampledBatch:
        """Return a batch from what the core returns."""
        nodes, sizes, hops, instances = found
        edges: list[dict[Relation, Any]] = [dict(zip(self.edge_relations, hop, strict=True)) for hop in hops]
        if self.subgraphs.subgraph_type == "bidirectional":
            edges = [both_ways(self.edge_relations, [{r: e[:3] for r, e in hop.items()} for hop in edges])]
        return SampledBatch(
            dict(zip(self.node_types, nodes, strict=True)),
            [dict(zip(self.node_types, counts, strict=True)) for counts in sizes],
            [{r: SampledEdges(*arrays) for r, arrays in hop.items()} for hop in edges],
            epoch,
            batch,
            dict(zip(self.node_types, instances, strict=False)),
            times,
            self.subgraphs.subgraph_type,
        )

    def seed_times(self, seeds: Mapping[str, IdArray], seed_time: Seeds | None) -> dict[str, npt.NDArray[Any]]:
        """Return the time of each seed by type, exact in the dtype of the graph's times; nothing without `times`.

        `InputError` as in `sample`.
        """
        if self.times is None:
            if seed_time is not None:
                raise InputError("seed_time: has no effect without time; give time, the name of the times in the graph")
            return {}
        if seed_time is not None and not isinstance(seed_time, Mapping):
            types = [t for t, ids in seeds.items() if ids.size] or self.node_types
            if len(types) != 1:
                raise InputError(f"seed_time: expected a mapping from node type to times, types: {', '.join(types)}")
            seed_time = {types[0]: seed_time}
        self._check_types(given := seed_time or {}, "seed_time")
        return {t: self.times.of_seeds(t, ids, given.get(t)) for t, ids in seeds.items()}

    def link_times(self, times: Any, count: int) -> npt.NDArray[Any] | None:
        """Return the times of `count` links, exact as in `seed_times`; ``None`` for a sampler without `times`."""
        if self.times is None and times is None:
            return None
        if self.times is None or times is None:
            raise InputError("link_time: needs time, and time needs link_time: one number for each link")
        return self.times.exact(times, "link_time", count)

    def sample_nodes(
        self,
        seeds: Seeds,
        *,
        epoch: int = 0,
        batch: int = 0,
        counts: AccessCounts | None = None,
        seed_time: Seeds | None = None,
    ) -> dict[str, IdArray]:
        """Return the unique nodes of the batch that `sample` makes, per type, and add what it reads to `counts`.

        Edges are sampled, but not returned. May be called from many threads at once, with the same counters.
        """
        lists, key = self._per_type(seeds, "seeds"), (key_word(epoch, "epoch"), key_word(batch, "batch"))
        counters = ([], []) if counts is None else self._counters(counts)
        times = self.seed_times(dict(zip(self.node_types, lists, strict=True)), seed_time)
        with self._explained():
            nodes = self._native.sample_nodes(lists, *key, *counters, _words(times))
        return dict(zip(self.node_types, nodes, strict=True))

    def check_positions(self) -> None:
        """Raise `InputError` if this sampler's edges have no places in ``indices``."""

    def batches(
        self,
        train: Seeds,
        batch_size: int,
        epoch: int,
        *,
        drop_last: bool = False,
        shuffle: bool = True,
        seed_time: Seeds | None = None,
    ) -> EpochPlan:
        """Return the batches of an epoch with this sampler's seed; see `tiering.sampling.batches`."""
        lists = dict(zip(self.node_types, self._per_type(train, "training nodes"), strict=True))
        times = self.seed_times(lists, seed_time)
        return cut_batches(
            lists, batch_size, epoch, seed=self.seed, drop_last=drop_last, shuffle=shuffle, seed_time=times
        )

    def count_accesses(
        self,
        plan: EpochPlan,
        counts: AccessCounts | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        threads: int | None = None,
        lists: ListFiles | None = None,
    ) -> AccessCounts:
        """Sample batches ``[first, last)`` of an epoch, `threads` at a time, and count what they read.

        Adds to `counts`, or to new counters, and returns them. With `lists` one thread samples windows of as many
        batches as these have room for. The result does not depend on `threads` and `lists`.
        """
        counts = AccessCounts.zeros(self.graph) if counts is None else counts
        last = len(plan) if last is None else last
        if lists is not None:
            for _ in self.windows(plan, first, last, counts, lists):
                pass
            return counts
        (seeds, epoch, times), counters = self._epoch(plan), self._counters(counts)
        with self._explained():
            self._native.count_accesses(seeds, epoch, first, last, *counters, parse_threads(threads), times)
        return counts

    def windows(
        self, plan: EpochPlan, first: int, last: int, counts: AccessCounts | None, lists: ListFiles, *,
        nodes: bool = False,
    ) -> Iterator[list[dict[str, IdArray]]]:  # fmt: skip
        """Sample batches ``[first, last)`` of an epoch by windows, and yield for each window its batches' unique nodes.

        Adds to `counts`. Without `nodes` what is yielded is empty.
        """
        (seeds, epoch, times), size = self._epoch(plan), 64  # memory ends the first window, too
        counters = ([], []) if counts is None else self._counters(counts)
        wanted = "unique_nodes" if nodes else "nothing"
        while first < last:
            given = [(ids, ends[first : last + 1]) for ids, ends in seeds]
            with self._explained():
                done, size, _, found = self._native.sample_window(
                    given, epoch, np.arange(first, last), size, *counters, lists.files, lists.times, lists.room, wanted,
                    times,
                )  # fmt: skip
            first += done
            yield [dict(zip(self.node_types, each[0], strict=True)) for each in found]

    def _epoch(self, plan: EpochPlan) -> tuple[list[tuple[IdArray, IdArray]], int, list[IdArray]]:
        """Return a plan as the core takes it: ids and offsets per node type, the epoch, and times of the seeds."""
        self._check_types(plan.ids, "plan")
        idle = np.zeros(len(plan) + 1, np.int64)
        lists = [(plan.ids.get(t, _NONE), plan.offsets.get(t, idle)) for t in self.node_types]
        given = {t: ids for t, (ids, _) in zip(self.node_types, lists, strict=True)}
        times = self.seed_times(given, plan.times or None)
        return lists, key_word(plan.epoch, "epoch"), _words(times)

    def _counters(self, counts: AccessCounts) -> tuple[list[IdArray], list[IdArray]]:
        """Return the arrays per node type and per relation that the core may add to in place."""
        features = [
            _checked_counter(counts.features.get(t), self.graph.num_nodes(t), f"feature counts of type {t!r}")
            for t in self.node_types
        ]
        adjacency = [
            _checked_counter(counts.adjacency.get(r), self.graph.num_nodes(r[2]), f"adjacency counts of {':'.join(r)}")
            for r in self.relations
        ]
        return features, adjacency

    def _check_types(self, values: Mapping[str, Any], what: str) -> None:
        if unknown := [t for t in values if t not in self.node_types]:
            raise InputError(f"{what}: no node type {unknown[0]!r}; types: {', '.join(self.node_types)}")

    def _per_type(self, ids: Seeds, what: str) -> list[IdArray]:
        """Return one checked array per node type, empty where nothing was given."""
        if not isinstance(ids, Mapping):
            if len(self.node_types) != 1:
                raise InputError(
                    f"{what}: the graph has several node types; give a mapping from node type to ids, types: "
                    f"{', '.join(self.node_types)}"
                )
            ids = {self.node_types[0]: ids}
        self._check_types(ids, what)
        return [id_array(ids.get(t, ()), f"{what} of type {t!r}", self.graph.num_nodes(t)) for t in self.node_types]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Raise errors of the core with the graph and what to do in the message."""
        try:
            yield
        except RefusedError as error:
            path = getattr(self.graph, "path", "graph")
            advice = {
                "weights": f"{path}: {error}; correct the weights and import again, or use another sampler",
                "adjacency": f"{path}: {error}; {damaged(path)}",
            }
            raise InputError(advice.get(error.subject, str(error))) from None


def _words(times: Mapping[str, npt.NDArray[Any]]) -> list[IdArray]:
    """Return times by type as 64-bit words of the core."""
    return [array.view(np.int64) for array in times.values()]


def _checked_counter(counter: IdArray | None, size: int, what: str) -> IdArray:
    """Return the array itself, checked: a converted copy would take the counts with it."""
    if counter is None or counter.dtype != np.int64 or counter.shape != (size,) or not counter.flags.carray:
        found = "none" if counter is None else f"{counter.dtype} of shape {counter.shape} and strides {counter.strides}"
        found += "" if counter is None or counter.flags.writeable else ", read-only"
        raise InputError(
            f"{what}: expected a contiguous int64 array of shape ({size},), found {found}; see AccessCounts.zeros"
        )
    return counter
