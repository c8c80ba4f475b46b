"""Link prediction: which links make which batch, pairs that are no links, and the nodes that both are about."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.sampling.graph import Relation
from tiering.sampling.plan import IdArray, cut_order, epoch_order, id_array

Pairs = tuple[IdArray, IdArray]
"""Sources and destinations."""
IdsOf = Callable[[str, IdArray], IdArray]
"""Turns original ids of a type into ids of the graph."""


@dataclass(frozen=True)
class Negatives:
    """Options of negative pairs, which are (most likely) no links and sampled in addition to the links.

    ``binary``: ends of their own, `amount` pairs for each link, rounded up for the batch; ``triplet``: `amount` other
    destinations, a whole number, for the source of each link. Every node of the type is sampled with the same
    probability, or in proportion to a weight. Nothing keeps a link from being sampled.
    """

    mode: str = "binary"
    amount: float = 1.0
    src_weight: npt.NDArray[Any] | None = None
    """By original id, shape (nodes of the source type,): only of ``binary``."""
    dst_weight: npt.NDArray[Any] | None = None
    """By original id, shape (nodes of the destination type,)."""

    def __post_init__(self) -> None:
        if self.mode not in ("binary", "triplet"):
            raise InputError(f"negatives: expected mode binary or triplet, found {self.mode!r}")
        if isinstance(self.amount, bool) or not isinstance(self.amount, int | float | np.number):
            raise InputError(f"negatives: expected a mode, an amount or a mapping of both, found {self.amount!r}")
        if not self.amount > 0 or not math.isfinite(self.amount):
            raise InputError(f"negatives: expected an amount of more than 0, found {self.amount!r}")
        if self.mode == "triplet" and self.amount != int(self.amount):
            raise InputError(f"negatives: triplets need a whole number for each link, found {self.amount!r}")

    @classmethod
    def of(cls, negatives: Any) -> Negatives | None:
        """Return negatives as they are, or of a mode, an amount of mode binary, or a mapping of arguments."""
        if negatives is None or isinstance(negatives, Negatives):
            return negatives
        if isinstance(negatives, Mapping):
            return cls(**negatives)
        return cls(negatives) if isinstance(negatives, str) else cls(amount=negatives)

    @property
    def triplets(self) -> bool:
        """Whether only destinations are sampled."""
        return self.mode == "triplet"


@dataclass(frozen=True)
class LinkedNodes:
    """Nodes and pairs of a batch of links, in positions of `nodes`: the first nodes of the batch sampled for it."""

    places: IdArray  # position of each link in the list of links
    nodes: dict[str, IdArray]  # ends of all pairs, unique: sources of links, of negative pairs, then destinations
    src: IdArray  # sources of the links, then of negative pairs
    dst: IdArray  # destinations likewise; with triplets of the links alone
    dst_negative: IdArray | None  # triplets: shape (links, amount), the other destinations
    end_links: dict[str, IdArray] | None = None  # of disjoint batches, per entry of `nodes`: number of its link here
    time: npt.NDArray[Any] | None = None  # times of the pairs: links, then negatives; with triplets of links alone

    @property
    def seed_time(self) -> dict[str, npt.NDArray[Any]] | None:
        """Times along `nodes`; ``None`` for links without times."""
        return None if self.time is None else {t: self.time[links] for t, links in (self.end_links or {}).items()}


def numbers_of_links(instances: dict[str, IdArray], end_links: Mapping[str, IdArray] | None) -> dict[str, IdArray]:
    """Return, per node of a disjoint batch, the number of its link where `end_links` has the link of each end."""
    if not end_links:
        return instances
    of_instance = np.concatenate([end_links[t] for t in instances if t in end_links])
    return {t: of_instance[instance] for t, instance in instances.items()}


class Links:
    """Links of a relation that batches are made of: so many, whose ends `pairs` gives by their positions.

    `num_nodes` has the number of nodes of the source and of the destination type. `ids_of` turns original ids of a type
    into ids of the graph, so that negative pairs of a reordered graph are the images of the original graph's pairs.
    """

    def __init__(
        self,
        relation: Relation,
        count: int,
        pairs: Callable[[IdArray], Pairs],
        num_nodes: tuple[int, int],
        ids_of: IdsOf = lambda node_type, ids: ids,
    ) -> None:
        if count < 1:
            raise InputError(f"links of {':'.join(relation)}: expected at least 1, found {count}")
        self.relation, self.count, self.pairs, self.num_nodes, self.ids_of = relation, count, pairs, num_nodes, ids_of
        self.time: npt.NDArray[Any] | None = None
        """Time of each link, in the dtype of the graph's times."""

    @classmethod
    def of_csc(
        cls, relation: Relation, indptr: IdArray, indices: npt.NDArray[Any], num_src: int,
        ids_of: IdsOf = lambda node_type, ids: ids, order: IdArray | None = None,
    ) -> Links:  # fmt: skip
        """Return all edges of a relation, or those at the positions `order`; places are in `indices`, or in it."""

        def pairs(places: IdArray) -> Pairs:
            places = places if order is None else order[places]
            dst = np.searchsorted(indptr, places, side="right") - 1
            return indices[places].astype(np.int64), dst.astype(np.int64)

        return cls(
            relation, int(indices.size if order is None else order.size), pairs, (num_src, int(indptr.size) - 1), ids_of
        )

    @classmethod
    def of_ids(
        cls, relation: Relation, src: IdArray, dst: IdArray, num_nodes: tuple[int, int],
        ids_of: IdsOf = lambda node_type, ids: ids,
    ) -> Links:  # fmt: skip
        """Return the links between ids of the graph, in the order given."""
        src, dst = id_array(src, "links: sources", num_nodes[0]), id_array(dst, "links: destinations", num_nodes[1])
        return cls(relation, int(src.size), lambda places: (src[places], dst[places]), num_nodes, ids_of)


class NegativeDraws:
    """Random nodes of both ends' types (`num_nodes`) for negative pairs; 8 bytes per node of a type with weights.

    `node_times`: times of both ends' types by original id; 24 bytes per node. Nodes are sampled from their time on.
    """

    def __init__(
        self, negatives: Negatives, num_nodes: tuple[int, int], node_times: tuple[Any, Any] = (None, None)
    ) -> None:
        self.negatives = negatives
        self._num_nodes = num_nodes
        weights = (negatives.src_weight, "src_weight"), (negatives.dst_weight, "dst_weight")
        self._sums = [
            _running_sums(weight, count, what) for (weight, what), count in zip(weights, num_nodes, strict=True)
        ]
        self._existing: list[tuple[IdArray, npt.NDArray[Any], npt.NDArray[np.float64]] | None] = [
            None if times is None else _in_time(times, weight)
            for times, (weight, _) in zip(node_times, weights, strict=True)
        ]

    def __call__(self, bits: np.random.Philox, count: int, end: int, time: Any = None) -> IdArray:
        """Return the original ids of so many nodes of a type (0: sources', 1: destinations').

        With `time`, one for each, of nodes that exist by then: each with the same probability, or in proportion to its
        weight. `InputError`: there is none.
        """
        uniform = (bits.random_raw(count).astype(np.uint64) >> np.uint64(11)) * 2.0**-53
        sums, existing = self._sums[end], self._existing[end]
        ids: IdArray
        if existing is not None:
            order, times, sums = existing
            total = np.append(0.0, sums)[np.searchsorted(times, time, side="right")]
            if (none := np.flatnonzero(total == 0)).size:
                raise InputError(
                    f"negatives: no node can be sampled for negative {none[0]} of the batch, because none exists at "
                    f"time {time[none[0]]}; remove such links"
                )
            last = np.searchsorted(sums, total)
            ids = order[np.minimum(np.searchsorted(sums, uniform * total, side="right"), last)]
        elif sums is None:
            ids = (uniform * self._num_nodes[end]).astype(np.int64)
        else:  # a draw that rounds up to the sum itself would be beyond the last node
            last = np.searchsorted(sums, sums[-1])
            ids = np.minimum(np.searchsorted(sums, uniform * sums[-1], side="right"), last).astype(np.int64)
        return ids


def link_nodes(
    links: Links, places: IdArray, draws: NegativeDraws | None, key: tuple[int, int, int], disjoint: bool = False
) -> LinkedNodes:
    """Return the links at `places` and their negative pairs: a pure function of `key`, (seed, epoch, batch).

    Disjoint: each end is an entry of its own, and negative number j goes with link j modulo their number.
    """
    seed, epoch, batch = key
    relation, (src, dst) = links.relation, links.pairs(places)
    time = None if links.time is None else links.time[places]
    of_src = of_dst = np.arange(places.size)
    triplets = draws is not None and draws.negatives.triplets
    if draws is not None:
        count = math.ceil(places.size * draws.negatives.amount)
        bits = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=np.array([0, 0, 0, batch], np.uint64))
        more = np.arange(count) % places.size
        of_dst, at = np.concatenate((of_dst, more)), None if time is None else time[more]
        if not triplets:
            of_src = of_dst
            src = np.concatenate((src, links.ids_of(relation[0], draws(bits, count, 0, at))))
        dst = np.concatenate((dst, links.ids_of(relation[2], draws(bits, count, 1, at))))
    end_links = None
    if disjoint:
        nodes, src, dst = _apart(relation, src, dst)
        end_links = _apart(relation, of_src, of_dst)[0]
        time = None if time is None else time[of_src]
    else:
        nodes, src, dst = _numbered(relation, src, dst)
    if not triplets:
        return LinkedNodes(places, nodes, src, dst, None, end_links, time)
    negative = dst[places.size :]
    negative = negative.reshape(-1, places.size).T if disjoint else negative.reshape(places.size, -1)
    return LinkedNodes(places, nodes, src, dst[: places.size], negative, end_links, time)


class LinkPlan:
    """The batches of links of one epoch, 8 bytes per link; ``plan[b]``: the nodes that batch b starts from, by type.

    `drop_last`, `world_size` and the end of the epoch: `tiering.sampling.plan.cut_order`.
    """

    def __init__(
        self,
        links: Links,
        batch_size: int,
        epoch: int,
        *,
        seed: int = 0,
        negatives: Negatives | NegativeDraws | None = None,
        drop_last: bool = False,
        shuffle: bool = True,
        order: IdArray | None = None,  # places of the links, of an epoch by default
        disjoint: bool = False,  # whether each end has a subgraph of its own
        world_size: int = 1,
    ) -> None:
        self.epoch, self._disjoint = epoch, disjoint
        self._links, self._seed = links, seed
        if order is None:
            order = epoch_order(links.count, seed, epoch) if shuffle else np.arange(links.count)
        self._order, self._ends = cut_order(order, "links", batch_size, drop_last, world_size)
        self._draws = NegativeDraws(negatives, links.num_nodes) if isinstance(negatives, Negatives) else negatives

    def __len__(self) -> int:
        return self._ends.size - 1

    def __getitem__(self, batch: int) -> dict[str, IdArray]:
        return self.linked_nodes(batch).nodes

    def seeds_of(self, batch: int) -> tuple[dict[str, IdArray], dict[str, npt.NDArray[Any]] | None]:
        """Return the nodes of a batch and their times, per node type; ``None`` for links without times."""
        linked = self.linked_nodes(batch)
        return linked.nodes, linked.seed_time

    def linked_nodes(self, batch: int) -> LinkedNodes:
        """Return the nodes and pairs of a batch."""
        if not 0 <= batch < len(self):
            raise IndexError(f"batch {batch} of {len(self)}")
        places = self._order[slice(*self._ends[batch : batch + 2])]
        return link_nodes(self._links, places, self._draws, (self._seed, self.epoch, batch), self._disjoint)


def _apart(relation: Relation, src: IdArray, dst: IdArray) -> tuple[dict[str, IdArray], IdArray, IdArray]:
    """Return both ends by type, one behind the other, and their positions there."""
    alike = relation[0] == relation[2]
    nodes = {relation[0]: np.concatenate((src, dst))} if alike else {relation[0]: src, relation[2]: dst}
    return nodes, np.arange(src.size), np.arange(dst.size) + (src.size if alike else 0)


def _numbered(relation: Relation, src: IdArray, dst: IdArray) -> tuple[dict[str, IdArray], IdArray, IdArray]:
    """Return unique nodes by type in order of appearance, and both ends as positions among them."""
    if relation[0] == relation[2]:
        nodes, places = _first_seen(np.concatenate((src, dst)))
        return {relation[0]: nodes}, places[: src.size], places[src.size :]
    (src_nodes, src), (dst_nodes, dst) = _first_seen(src), _first_seen(dst)
    return {relation[0]: src_nodes, relation[2]: dst_nodes}, src, dst


def _first_seen(ids: IdArray) -> tuple[IdArray, IdArray]:
    """Return the different ids in order of appearance, and the position of each id among them."""
    unique, first, inverse = np.unique(ids, return_index=True, return_inverse=True)
    order = np.argsort(first)
    place = np.empty(unique.size, np.int64)
    place[order] = np.arange(unique.size)
    return unique[order], place[inverse.reshape(-1)]


def _in_time(times: Any, weight: Any) -> tuple[IdArray, npt.NDArray[Any], npt.NDArray[np.float64]]:
    """Return nodes by time, equal ones by id, their times, and running sums of their weights, 1 without."""
    order = np.argsort(times, kind="stable").astype(np.int64)
    return (
        order,
        times[order],
        np.cumsum(np.ones(order.size) if weight is None else np.asarray(weight, np.float64)[order]),
    )


def _running_sums(weight: npt.NDArray[Any] | None, count: int, what: str) -> npt.NDArray[np.float64] | None:
    if weight is None:
        return None
    weights = np.asarray(weight, np.float64)
    if weights.shape != (count,):
        raise InputError(f"negatives: {what}: expected one weight for each of {count} nodes, found {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise InputError(f"negatives: {what}: expected finite weights of 0 or more, at least one above 0")
    return np.cumsum(weights)
