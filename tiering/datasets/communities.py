"""The model behind generated data: communities, power-law endpoints, features that carry the label weakly.

Nodes of a type stand in *slots*: community k has the slots n*k//C .. n*(k+1)//C - 1. A node's id is its slot
under a keyed permutation (`Shuffle`), so ids tell neither community nor hotness. Inside a community of m slots

- an edge's destination has rank floor(m * u^2), its source rank floor(m * u^3), u uniform: in-degrees and
  out-degrees follow power laws with density exponents 3 and 2.5. The orders are unrelated: a source's rank is turned
  into a slot by a multiplication modulo m.
- destination communities are as frequent as their size; the source is of the same community with probability
  `homophily`, else of any.
- a feature row is signal / sqrt(dim) * (a vector of +-1 for the community) + noise of variance 1.

Alone, a row tells the label poorly. The mean over d in-neighbours keeps most of the signal and divides the
variance by d: a network that aggregates beats one that does not.

Every block of numbers comes from a Philox generator keyed by (seed, stream, block). Only integer arithmetic and
correctly rounded operations (+, -, *, /, sqrt) are used: the same bytes on every machine.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

EDGE_BLOCK = 1 << 18
"""Edges made at a time. Part of the definition: other blocks give other edges."""
FEATURE_BLOCK = 1 << 21
"""Feature values made at a time, in whole rows. Part of the definition like `EDGE_BLOCK`."""
SHUFFLE_ROUNDS = 3


class Shuffle:
    """A random-looking permutation of 0..size-1 chosen by a key; needs no table: any element of it, in O(1) memory.

    Works on the k bits that size - 1 needs: rounds of multiplication by an odd number and of exclusive or with the
    upper half, each invertible. Results outside the range are mapped again (cycle walking), on average less than
    once, since the range is at least half of 2^k. Integer arithmetic alone: the same on every machine.

    Parameters
    ----------
    size
        Number of elements, 1 to 2^62.
    key
        Two or more numbers below 2^64 that choose the permutation.
    """

    def __init__(self, size: int, key: tuple[int, ...]) -> None:
        self.size = size
        bits = max(2, (size - 1).bit_length())
        self._mask = np.uint64(2**bits - 1)
        self._shift = np.uint64((bits + 1) // 2)
        raw = np.random.Philox(np.random.SeedSequence(list(key))).random_raw(2 * SHUFFLE_ROUNDS)
        self._odd = [np.uint64(int(x) | 1) & self._mask for x in raw[:SHUFFLE_ROUNDS]]
        self._add = [np.uint64(int(x)) & self._mask for x in raw[SHUFFLE_ROUNDS:]]
        self._odd_inverse = [np.uint64(pow(int(x), -1, 2**bits)) for x in self._odd]

    def _round_trip(self, x: npt.NDArray[np.uint64], inverse: bool) -> npt.NDArray[np.uint64]:
        x = x.copy()
        for i in reversed(range(SHUFFLE_ROUNDS)) if inverse else range(SHUFFLE_ROUNDS):
            if inverse:
                x ^= x >> self._shift
                x -= self._add[i]
                x *= self._odd_inverse[i]
                x &= self._mask
            else:
                x *= self._odd[i]
                x += self._add[i]
                x &= self._mask
                x ^= x >> self._shift
        return x

    def _walk(self, values: npt.NDArray[Any], inverse: bool) -> npt.NDArray[np.int64]:
        x = self._round_trip(np.asarray(values).astype(np.uint64), inverse)
        outside = np.flatnonzero(x >= np.uint64(self.size))
        while outside.size:
            again = self._round_trip(x[outside], inverse)
            x[outside] = again
            outside = outside[again >= np.uint64(self.size)]
        return x.view(np.int64)

    def forward(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Images of values in 0..size-1."""
        return self._walk(values, inverse=False)

    def backward(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Inverse of `forward`."""
        return self._walk(values, inverse=True)


def raw_numbers(seed: int, stream: int, block: int, size: int) -> npt.NDArray[np.uint64]:
    """`size` uniform 64-bit numbers of one block of one stream."""
    raw: npt.NDArray[np.uint64] = np.random.Philox(key=[seed, (stream << 44) + block]).random_raw(size)
    return raw


def _unit(raw: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Uniform in [0, 1), 53 bits."""
    unit: npt.NDArray[np.float64] = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return unit


@dataclass(frozen=True)
class Population:
    """The nodes of one type."""

    size: int
    communities: int
    seed: int
    stream: int
    """Number of the type: keeps its random numbers apart from others'."""
    shuffle: Shuffle = field(init=False, repr=False, compare=False)
    starts: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    """First slot of each community, and the end; shape (communities + 1,)."""
    factors: npt.NDArray[np.int64] = field(init=False, repr=False, compare=False)
    """Multiplier of each community from source rank to slot."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shuffle", Shuffle(self.size, (self.seed, 1, self.stream)))
        starts = np.array([self.size * k // self.communities for k in range(self.communities + 1)], np.int64)
        object.__setattr__(self, "starts", starts)
        object.__setattr__(self, "factors", np.array([_coprime(int(n)) for n in np.diff(starts)], np.int64))

    def community_of_ids(self, ids: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        """Community of each node id: its label."""
        return self._community_of_slots(self.shuffle.backward(ids))

    def _community_of_slots(self, slots: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        return np.searchsorted(self.starts, slots, side="right").astype(np.int64) - 1

    def draw_communities(self, unit: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """Communities with probability in proportion to size."""
        return self._community_of_slots((unit * self.size).astype(np.int64))

    def ids_by_rank(
        self, community: npt.NDArray[np.int64], share: npt.NDArray[np.float64], *, turned: bool
    ) -> npt.NDArray[np.int64]:
        """Node ids at `share` in [0, 1) of the ranks of their community; `turned`: in the order of sources."""
        start = self.starts[community]
        count = self.starts[community + 1] - start
        rank = (share * count).astype(np.int64)
        if turned:
            rank = rank * self.factors[community] % count
        return self.shuffle.forward(start + rank)

    def features(self, block: int, rows: slice, dim: int, signal: float) -> npt.NDArray[np.float32]:
        """Feature rows of the ids in `rows`, which is block number `block`; shape (rows, dim)."""
        number = rows.stop - rows.start
        noise = raw_numbers(self.seed, 16 + self.stream, block, -(-number * dim // 2)).view(np.uint32)
        community = self.community_of_ids(np.arange(rows.start, rows.stop))
        values = _bell(noise[: number * dim]).reshape(number, dim)
        values += self._means(dim, signal)[community]
        return values

    def _means(self, dim: int, signal: float) -> npt.NDArray[np.float32]:
        """Mean of each community, shape (communities, dim); the same for all types of a dataset up to `dim`."""
        raw = raw_numbers(self.seed, 2, 0, self.communities * dim).reshape(self.communities, dim)
        signs = (raw >> np.uint64(63)).astype(np.float32) * 2 - 1
        means: npt.NDArray[np.float32] = signs * np.float32(signal / math.sqrt(dim))
        return means


def _coprime(count: int) -> int:
    """A multiplier near the golden section of `count` without common factor: spreads neighbouring ranks."""
    factor = max(1, int(count * 0.6180339887))
    while math.gcd(factor, count) != 1:
        factor += 1
    return factor


def _bell(raw: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """Bell-shaped numbers of mean 0 and variance 1: the sum of the 4 bytes of each number, scaled."""
    pairs = (raw & np.uint32(0x00FF00FF)) + ((raw >> np.uint32(8)) & np.uint32(0x00FF00FF))
    total: npt.NDArray[np.float32] = ((pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16))).astype(np.float32)
    total -= np.float32(510)
    total *= np.float32(1 / math.sqrt(4 * (256**2 - 1) / 12))
    return total


def draw_edges(
    source: Population, target: Population, stream: int, block: int, count: int, homophily: float
) -> npt.NDArray[np.int64]:
    """`count` <= `EDGE_BLOCK` edges of one block, shape (count, 2): source id, destination id.

    Within one type an edge that would be a self loop goes from the next slot instead.
    """
    raw = raw_numbers(target.seed, 64 + stream, block, 5 * count).reshape(5, count)
    target_community = target.draw_communities(_unit(raw[0]))
    any_community = source.draw_communities(_unit(raw[1]))
    # The lowest bits of raw[1] do not reach any_community, which takes the upper 53.
    same = _unit(raw[2]) < homophily
    source_community = np.where(same, target_community, any_community)
    u, v = _unit(raw[3]), _unit(raw[4])
    edges = np.empty((count, 2), np.int64)
    edges[:, 0] = source.ids_by_rank(source_community, u * u * u, turned=True)
    edges[:, 1] = target.ids_by_rank(target_community, v * v, turned=False)
    if source is target:
        loop = np.flatnonzero(edges[:, 0] == edges[:, 1])
        edges[loop, 0] = source.shuffle.forward((source.shuffle.backward(edges[loop, 0]) + 1) % source.size)
    return edges
