"""Deterministic neighbour sampling: one sampler for scoring, evaluation and training.

A batch is a pure function of the graph, the seeds and ``(seed, epoch, batch)``: the number of threads, the order
of the calls and the machine do not matter. Random numbers are keyed by the *original* node id, so a reordered
graph samples the images of the very same batches.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import InputError
from tiering.units import parse_threads

Relation = tuple[str, str, str]
IdArray = npt.NDArray[np.int64]
Seeds = npt.ArrayLike | Mapping[str, npt.ArrayLike]
"""Node ids: an array where the graph has one node type, else a mapping from node type to array."""
Fanout = int | Mapping[Any, int]
"""Neighbours per node at one hop: one number for all relations, or one per relation."""
FrontierRule = Literal["all", "new"]


class SampledGraph(Protocol):
    """What the sampler asks of a graph. `tiering.formats.graph.Graph` is one."""

    @property
    def node_types(self) -> list[str]:
        """Node types, in a fixed order."""

    @property
    def relations(self) -> list[Relation]:
        """(source type, name, destination type), in a fixed order."""

    def num_nodes(self, node_type: str) -> int:
        """Nodes of a type."""

    def csc(self, relation: Relation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """``(indptr, indices)``: column = destination, indices = its in-neighbours."""


@dataclass(frozen=True)
class SampledEdges:
    """Edges sampled at one hop of one relation, grouped by destination in frontier order."""

    src: npt.NDArray[np.int32]
    """Shape (edges,): place of the source in ``nodes[source type]``."""
    dst: npt.NDArray[np.int32]
    """Shape (edges,): place of the destination in ``nodes[destination type]``; ascending."""
    positions: IdArray | None = None
    """Shape (edges,): place of the edge in the relation's ``indices``, on request."""

    def __len__(self) -> int:
        return int(self.src.size)


@dataclass(frozen=True)
class SampledBatch:
    """One mini-batch: unique nodes in order of discovery, and edges by hop in local ids."""

    nodes: dict[str, IdArray]
    """Per node type: ids in order of discovery, seeds first; unique. These are the rows that training reads."""
    num_nodes: list[dict[str, int]]
    """``num_nodes[h][t]``: nodes of type t known after h hops; entry 0 counts the seeds. hops + 1 entries."""
    hops: list[dict[Relation, SampledEdges]] = field(repr=False)
    """``hops[h][relation]``: edges drawn at hop h (0 = the seeds' own neighbours)."""
    epoch: int
    """Epoch the batch belongs to."""
    batch: int
    """Number of the batch in its epoch."""

    @property
    def seeds(self) -> dict[str, IdArray]:
        """Unique seeds per node type, in the order given: the first nodes of each list."""
        return {t: ids[: self.num_nodes[0][t]] for t, ids in self.nodes.items()}

    @property
    def num_edges(self) -> int:
        """Edges drawn in all hops and relations."""
        return sum(len(edges) for hop in self.hops for edges in hop.values())


@dataclass(frozen=True)
class EpochPlan:
    """The batches of one epoch: ``plan[b]`` gives the seeds of batch b per node type."""

    epoch: int
    """Number of the epoch."""
    ids: dict[str, IdArray]
    """Per node type: all seeds in the order of the epoch."""
    offsets: dict[str, IdArray]
    """Per node type, shape (batches + 1,): batch b is ``ids[t][offsets[t][b]:offsets[t][b + 1]]``."""

    def __len__(self) -> int:
        return min(int(o.size) - 1 for o in self.offsets.values())

    def __getitem__(self, batch: int) -> dict[str, IdArray]:
        if not 0 <= batch < len(self):
            raise IndexError(f"batch {batch} of {len(self)}")
        return {t: ids[self.offsets[t][batch] : self.offsets[t][batch + 1]] for t, ids in self.ids.items()}

    def __iter__(self) -> Iterator[dict[str, IdArray]]:
        return (self[batch] for batch in range(len(self)))


@dataclass
class AccessCounts:
    """How often each node's feature row and each adjacency list was read."""

    features: dict[str, IdArray]
    """Per node type, int64, shape (num_nodes,): +1 for every batch that contains the node."""
    adjacency: dict[Relation, IdArray]
    """Per relation, int64, shape (nodes of the destination type,): +1 every time the node samples its list."""

    @classmethod
    def zeros(cls, graph: SampledGraph) -> AccessCounts:
        """Counters of a graph, all 0."""
        return cls(
            {t: np.zeros(graph.num_nodes(t), np.int64) for t in graph.node_types},
            {r: np.zeros(graph.num_nodes(r[2]), np.int64) for r in graph.relations},
        )

    @property
    def total(self) -> int:
        """Feature accesses over all types."""
        return sum(int(counts.sum()) for counts in self.features.values())


def epoch_order(n: int, seed: int, epoch: int) -> IdArray:
    """Permutation of ``0 .. n - 1`` in which an epoch visits the training nodes; the same on every machine.

    Cost: n steps, 8 n bytes.
    """
    return native.epoch_order(n, _word(seed, "seed"), _word(epoch, "epoch"))


def batches(
    train: Mapping[str, npt.ArrayLike],
    batch_size: int,
    epoch: int,
    *,
    seed: int = 0,
    drop_last: bool = False,
    shuffle: bool = True,
) -> EpochPlan:
    """Cut the training nodes of one epoch into batches.

    With one node type, batch b is ``train[epoch_order(n, seed, epoch)][b * batch_size : (b + 1) * batch_size]``;
    several types are laid end to end and shuffled together.

    Parameters
    ----------
    train
        Node ids per node type, at least one in all. The order matters; duplicates are kept.
    batch_size
        Seeds per batch, at least 1.
    epoch
        Number of the epoch, 0 or more: every epoch has an order of its own.
    seed
        Seed of the run.
    drop_last
        Leave out a last batch that is short.
    shuffle
        ``False``: in the order given (validation, inference).

    Raises
    ------
    InputError
        If `train` is empty or not whole numbers, or the batch size is not positive.
    """
    if batch_size < 1:
        raise InputError(f"batch size: expected 1 or more, found {batch_size}")
    lists = {t: _ids(ids, f"training nodes of type {t!r}") for t, ids in train.items()}
    total = sum(ids.size for ids in lists.values())
    if total == 0:
        raise InputError("training nodes: expected at least 1, found 0; give a split or a list of node ids")
    order = epoch_order(total, seed, epoch) if shuffle else np.arange(total)
    count = total // batch_size if drop_last else -(-total // batch_size)
    if count == 0:
        raise InputError(f"drop_last: {total} training nodes make no batch of {batch_size}; use a smaller batch size")
    edges = np.minimum(np.arange(count + 1) * batch_size, total)
    plan = EpochPlan(epoch, {}, {})
    start = 0
    for node_type, ids in lists.items():
        mine = np.flatnonzero((order >= start) & (order < start + ids.size))
        plan.ids[node_type] = ids[order[mine] - start]
        plan.offsets[node_type] = np.searchsorted(mine, edges).astype(np.int64)
        start += ids.size
    return plan


class NeighborSampler:
    """Uniform neighbour sampling without replacement, hop by hop, over every relation.

    At hop h every node of the frontier draws ``min(degree, fanout)`` of its in-neighbours, each subset equally
    likely; a list no longer than the fanout is taken whole, in its order. Parallel edges are separate neighbours.

    Parameters
    ----------
    graph
        A graph artifact, or anything with the methods of `SampledGraph`; if it has ``node_keys(type)``, these
        original ids key the random numbers.
    fanouts
        One entry per hop, the seeds' own hop first (DGL lists them the other way round): a number for all relations
        or a mapping ``relation -> number`` with an entry for every relation (a tuple, ``"src:name:dst"``, or a name
        that is unique). -1 takes all neighbours; 0, in a mapping, skips the relation.
    frontier
        ``"all"``: every node found so far samples again (DGL, GraphBolt, the GraphSAGE of the papers); ``"new"``:
        only nodes first found at the hop before (PyG).
    seed
        Seed of the run, 0 to 2^64 - 1.

    Raises
    ------
    InputError
        If fanouts, frontier or seed do not fit the graph.

    Notes
    -----
    `sample` may be called from many threads at once; the interpreter lock is released. A batch needs about 40 bytes
    per unique node, and 8 per edge (16 with positions), beside the graph.
    """

    def __init__(
        self,
        graph: SampledGraph,
        fanouts: Sequence[Fanout],
        *,
        frontier: FrontierRule = "all",
        seed: int = 0,
    ) -> None:
        if frontier not in ("all", "new"):
            raise InputError(f"frontier: expected 'all' or 'new', found {frontier!r}")
        self.graph = graph
        self.frontier = frontier
        self.seed = _word(seed, "seed")
        self.node_types = list(graph.node_types)
        self.relations = [cast(Relation, tuple(r)) for r in graph.relations]
        self.fanouts = resolve_fanouts(self.relations, fanouts)
        place = {t: i for i, t in enumerate(self.node_types)}
        self._native = native.Sampler(
            num_nodes=[graph.num_nodes(t) for t in self.node_types],
            relations=[(place[r[0]], place[r[2]], *_csc(graph, r)) for r in self.relations],
            fanouts=self.fanouts,
            frontier=frontier,
            node_keys=[_node_keys(graph, t) for t in self.node_types],
            seed=self.seed,
        )

    def sample(self, seeds: Seeds, *, epoch: int = 0, batch: int = 0, positions: bool = False) -> SampledBatch:
        """Sample one batch.

        Parameters
        ----------
        seeds
            Node ids to start from. One that comes twice counts once, where it came first.
        epoch, batch
            Key of the random numbers, 0 or more.
        positions
            Also return every edge's place in the relation's ``indices`` (to look up weights, edge ids).

        Raises
        ------
        InputError
            If a seed is no node of the graph.
        """
        lists = self._per_type(seeds, "seeds")
        try:
            nodes, sizes, hops = self._native.sample(lists, _word(epoch, "epoch"), _word(batch, "batch"), positions)
        except ValueError as error:
            raise self._explain(error) from None
        return SampledBatch(
            dict(zip(self.node_types, nodes, strict=True)),
            [dict(zip(self.node_types, counts, strict=True)) for counts in sizes],
            [{r: SampledEdges(*edges) for r, edges in zip(self.relations, hop, strict=True)} for hop in hops],
            epoch,
            batch,
        )

    def batches(
        self, train: Seeds, batch_size: int, epoch: int, *, drop_last: bool = False, shuffle: bool = True
    ) -> EpochPlan:
        """Batches of an epoch with this sampler's seed; see `tiering.sampling.batches`.

        Raises
        ------
        InputError
            If `train` is empty, or holds ids that are no nodes of the graph.
        """
        lists = dict(zip(self.node_types, self._per_type(train, "training nodes"), strict=True))
        return batches(lists, batch_size, epoch, seed=self.seed, drop_last=drop_last, shuffle=shuffle)

    def count_accesses(
        self,
        plan: EpochPlan,
        counts: AccessCounts | None = None,
        *,
        first: int = 0,
        last: int | None = None,
        threads: int | None = None,
    ) -> AccessCounts:
        """Sample batches ``[first, last)`` of an epoch and count what they read.

        Parameters
        ----------
        plan
            From `batches`.
        counts
            Counters to add to; new ones if left out.
        threads
            Batches sampled at the same time; all processors by default. The result does not depend on it.

        Returns
        -------
        AccessCounts
            `counts`.
        """
        counts = AccessCounts.zeros(self.graph) if counts is None else counts
        last = len(plan) if last is None else last
        none = np.empty(0, np.int64)
        idle = np.zeros(len(plan) + 1, np.int64)
        lists = [(plan.ids.get(t, none), plan.offsets.get(t, idle)) for t in self.node_types]
        try:
            self._native.count_accesses(
                lists,
                _word(plan.epoch, "epoch"),
                first,
                last,
                [counts.features[t] for t in self.node_types],
                [counts.adjacency[r] for r in self.relations],
                parse_threads(threads),
            )
        except ValueError as error:
            raise self._explain(error) from None
        return counts

    def _per_type(self, ids: Seeds, what: str) -> list[IdArray]:
        """One checked array per node type, empty where nothing was given."""
        if not isinstance(ids, Mapping):
            if len(self.node_types) != 1:
                raise InputError(
                    f"{what}: the graph has several node types; expected a mapping from node type to ids, "
                    f"types: {', '.join(self.node_types)}"
                )
            ids = {self.node_types[0]: ids}
        if unknown := [t for t in ids if t not in self.node_types]:
            raise InputError(f"{what}: no node type {unknown[0]!r}; types: {', '.join(self.node_types)}")
        lists = []
        for node_type in self.node_types:
            label = f"{what} of type {node_type!r}"
            array = _ids(ids.get(node_type, ()), label)
            count = self.graph.num_nodes(node_type)
            if array.size and not 0 <= array.min() <= array.max() < count:
                at = int(np.flatnonzero((array < 0) | (array >= count))[0])
                raise InputError(f"{label}: entry {at} is {array[at]}; expected ids 0 .. {count - 1}")
            lists.append(array)
        return lists

    def _explain(self, error: ValueError) -> InputError:
        path = getattr(self.graph, "path", "graph")
        return InputError(f"{path}: {error}; run `tiering check --full` on the graph")


def resolve_fanouts(relations: Sequence[Relation], fanouts: Sequence[Fanout]) -> list[list[int]]:
    """Fanouts as hop x relation, checked.

    Raises
    ------
    InputError
        If there is no hop, a number is out of range, or a mapping misses a relation or names an unknown one.
    """
    if isinstance(fanouts, (str, bytes)) or not isinstance(fanouts, Sequence) or not fanouts:
        raise InputError(f"fanouts: expected one entry per hop such as [10, 10, 10], found {fanouts!r}")
    return [_hop_fanouts(relations, fanout, f"fanouts of hop {hop}") for hop, fanout in enumerate(fanouts)]


def _hop_fanouts(relations: Sequence[Relation], fanout: Fanout, what: str) -> list[int]:
    if not isinstance(fanout, Mapping):
        return [_fanout(fanout, what, lowest=1)] * len(relations)
    found: dict[Relation, int] = {}
    for key, value in fanout.items():
        found[_match_relation(relations, key, what)] = _fanout(value, f"{what}, relation {key!r}", lowest=0)
    if missing := [":".join(r) for r in relations if r not in found]:
        raise InputError(
            f"{what}: expected a number for each of {len(relations)} relations, none for {', '.join(missing)}; "
            "give 0 to skip a relation"
        )
    return [found[r] for r in relations]


def _match_relation(relations: Sequence[Relation], key: Any, what: str) -> Relation:
    exact = [r for r in relations if key == r or key == ":".join(r)]
    named = exact or [r for r in relations if key == r[1]]
    if len(named) != 1:
        known = ", ".join(":".join(r) for r in relations)
        raise InputError(f"{what}: no single relation {key!r}; relations: {known}")
    return named[0]


def _fanout(value: Any, what: str, lowest: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InputError(f"{what}: expected a whole number, found {value!r}") from None
    if number != -1 and not lowest <= number < 2**31:
        raise InputError(f"{what}: expected {lowest} or more, or -1 for all neighbours, found {number}")
    return number


def _word(value: int, what: str) -> int:
    if not 0 <= operator.index(value) < 2**64:
        raise InputError(f"{what}: expected a whole number from 0 to 2^64 - 1, found {value}")
    return operator.index(value)


def _ids(ids: npt.ArrayLike, what: str) -> IdArray:
    array = np.asarray(ids)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{what}: expected a 1-D array of whole numbers, found {array.dtype} of shape {array.shape}")
    return np.ascontiguousarray(array, dtype=np.int64)


def _csc(graph: SampledGraph, relation: Relation) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    indptr, indices = graph.csc(relation)
    name = ":".join(relation)
    if indptr.dtype != np.int64 or indptr.shape != (graph.num_nodes(relation[2]) + 1,):
        raise InputError(
            f"indptr of {name}: expected int64 of shape ({graph.num_nodes(relation[2]) + 1},), "
            f"found {indptr.dtype} of shape {indptr.shape}"
        )
    if indices.dtype not in (np.int32, np.int64) or indices.ndim != 1:
        raise InputError(
            f"indices of {name}: expected a 1-D array of int32 or int64, found {indices.dtype} of shape {indices.shape}"
        )
    return np.ascontiguousarray(indptr), np.ascontiguousarray(indices)


def _node_keys(graph: SampledGraph, node_type: str) -> np.ndarray[Any, Any] | None:
    find = getattr(graph, "node_keys", None)
    keys = None if find is None else find(node_type)
    if keys is None:
        return None
    if keys.dtype not in (np.int32, np.int64) or keys.shape != (graph.num_nodes(node_type),):
        raise InputError(
            f"node keys of {node_type!r}: expected int32 or int64 of shape ({graph.num_nodes(node_type)},), "
            f"found {keys.dtype} of shape {keys.shape}"
        )
    return np.ascontiguousarray(keys)
