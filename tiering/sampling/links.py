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
from tiering.sampling.plan import IdArray, epoch_order, id_array, positive_size

Pairs = tuple[IdArray, IdArray]
"""Sources and destinations."""
IdsOf = Callable[[str, IdArray], IdArray]
"""Turns original ids of a type into ids of the graph."""


@dataclass(frozen=True)
class Negatives:
    """How pairs that are (most likely) no links are drawn in addition to those that are.

    ``binary``: ends of their own, `amount` pairs for each link, rounded up for the batch; ``triplet``: `amount` other
    destinations, a whole number, for the source of each link. Every node of the type is drawn with the same
    probability, or in proportion to a weight. Nothing keeps a link from being drawn.
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
        """Whether only destinations are drawn."""
        return self.mode == "triplet"


@dataclass(frozen=True)
class LinkedNodes:
    """Nodes and pairs of a batch of links, in positions of `nodes`: the first nodes of the batch sampled for it."""

    places: IdArray  # position of each link in the list of links
    nodes: dict[str, IdArray]  # ends of all pairs, unique: sources of links, of negative pairs, then destinations
    src: IdArray  # sources of the links, then of negative pairs
    dst: IdArray  # destinations likewise; with triplets of the links alone
    dst_negative: IdArray | None  # triplets: shape (links, amount), the other destinations


class Links:
    """Links of a relation that batches are made of: so many, whose ends `pairs` gives by their positions.

    `num_nodes` are those of the source and of the destination type. `ids_of` turns original ids of a type into ids of
    the graph, so that negative pairs of a reordered graph are the images of those of the original one.
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
    """Random nodes of both ends' types (`num_nodes`) for negative pairs; 8 bytes per node of a type with weights."""

    def __init__(self, negatives: Negatives, num_nodes: tuple[int, int]) -> None:
        self.negatives = negatives
        self._num_nodes = num_nodes
        weights = (negatives.src_weight, "src_weight"), (negatives.dst_weight, "dst_weight")
        self._sums = [
            _running_sums(weight, count, what) for (weight, what), count in zip(weights, num_nodes, strict=True)
        ]

    def __call__(self, bits: np.random.Philox, count: int, end: int) -> IdArray:
        """Return the original ids of so many nodes of a type (0: sources', 1: destinations')."""
        uniform = (bits.random_raw(count).astype(np.uint64) >> np.uint64(11)) * 2.0**-53
        sums = self._sums[end]
        if sums is None:
            ids: IdArray = (uniform * self._num_nodes[end]).astype(np.int64)
        else:  # a draw that rounds up to the sum itself would be beyond the last node
            last = int(np.searchsorted(sums, sums[-1]))
            ids = np.minimum(np.searchsorted(sums, uniform * sums[-1], side="right"), last).astype(np.int64)
        return ids


def link_nodes(links: Links, places: IdArray, draws: NegativeDraws | None, key: tuple[int, int, int]) -> LinkedNodes:
    """Return the links at `places` and their negative pairs: a pure function of `key`, (seed, epoch, batch)."""
    seed, epoch, batch = key
    relation, (src, dst) = links.relation, links.pairs(places)
    if draws is None:
        return LinkedNodes(places, *_numbered(relation, src, dst), None)
    count, triplets = math.ceil(places.size * draws.negatives.amount), draws.negatives.triplets
    bits = np.random.Philox(key=np.array([seed, epoch], np.uint64), counter=np.array([0, 0, 0, batch], np.uint64))
    if not triplets:
        src = np.concatenate((src, links.ids_of(relation[0], draws(bits, count, 0))))
    all_dst = np.concatenate((dst, links.ids_of(relation[2], draws(bits, count, 1))))
    nodes, src, all_dst = _numbered(relation, src, all_dst)
    if not triplets:
        return LinkedNodes(places, nodes, src, all_dst, None)
    return LinkedNodes(places, nodes, src, all_dst[: places.size], all_dst[places.size :].reshape(places.size, -1))


class LinkPlan:
    """The batches of links of one epoch, 8 bytes per link; ``plan[b]``: the nodes that batch b starts from, by type."""

    def __init__(
        self,
        links: Links,
        batch_size: int,
        epoch: int,
        *,
        seed: int = 0,
        negatives: Negatives | None = None,
        drop_last: bool = False,
        shuffle: bool = True,
        order: IdArray | None = None,  # places of the links, of an epoch by default
    ) -> None:
        self.epoch = epoch
        self._links, self._seed = links, seed
        self._batch_size = size = positive_size(batch_size)
        total = links.count if order is None else order.size
        self._count = total // size if drop_last else -(-total // size)
        if not self._count:
            raise InputError(f"drop_last: {links.count} links make no batch of {size}; use a smaller batch size")
        if order is None:
            order = epoch_order(links.count, seed, epoch) if shuffle else np.arange(links.count)
        self._order = order
        self._draws = None if negatives is None else NegativeDraws(negatives, links.num_nodes)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, batch: int) -> dict[str, IdArray]:
        return self.linked_nodes(batch).nodes

    def times_of(self, batch: int) -> None:
        """Return the times of a batch's nodes: none."""

    def linked_nodes(self, batch: int) -> LinkedNodes:
        """Return the nodes and pairs of a batch."""
        if not 0 <= batch < len(self):
            raise IndexError(f"batch {batch} of {len(self)}")
        places = self._order[batch * self._batch_size : (batch + 1) * self._batch_size]
        return link_nodes(self._links, places, self._draws, (self._seed, self.epoch, batch))


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


def _running_sums(weight: npt.NDArray[Any] | None, count: int, what: str) -> npt.NDArray[np.float64] | None:
    if weight is None:
        return None
    weights = np.asarray(weight, np.float64)
    if weights.shape != (count,):
        raise InputError(f"negatives: {what}: expected one weight for each of {count} nodes, found {weights.shape}")
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise InputError(f"negatives: {what}: expected weights of 0 or more, finite and not all 0")
    return np.cumsum(weights)
