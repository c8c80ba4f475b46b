"""The model behind generated data: communities, power-law endpoints, features that carry the label weakly.

Nodes of a type stand in *slots*: community k has the slots n*k//C .. n*(k+1)//C - 1. A node's id is its slot
under a keyed permutation (`KeyedPermutation`), so ids tell neither community nor hotness. Inside a community of m slots

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
from typing import Any

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.int64]

EDGE_BLOCK = 1 << 18  # edges made at a time. Part of the definition: other blocks give other edges
FEATURE_BLOCK = 1 << 21  # feature values made at a time, in whole rows. Part of the definition like EDGE_BLOCK
SHUFFLE_ROUNDS = 3


class KeyedPermutation:
    """A permutation of 0..size-1 (size up to 2^62) chosen by a key of numbers below 2^64; needs no table.

    Works on the k bits that size - 1 needs: rounds of multiplication by an odd number and of exclusive or with the
    upper half, each invertible. Results outside the range are mapped again (cycle walking), on average less than
    once, since the range is at least half of 2^k. Integer arithmetic alone: the same on every machine.
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

    def _pass(self, x: npt.NDArray[np.uint64], inverse: bool) -> npt.NDArray[np.uint64]:
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

    def _walk(self, values: npt.NDArray[Any], inverse: bool) -> Ids:
        x = self._pass(np.asarray(values).astype(np.uint64), inverse)
        outside = np.flatnonzero(x >= np.uint64(self.size))
        while outside.size:
            again = self._pass(x[outside], inverse)
            x[outside] = again
            outside = outside[again >= np.uint64(self.size)]
        return x.view(np.int64)

    def forward(self, values: npt.NDArray[Any]) -> Ids:
        """Return the images of values in 0..size-1."""
        return self._walk(values, inverse=False)

    def backward(self, values: npt.NDArray[Any]) -> Ids:
        """Return the values whose images are given."""
        return self._walk(values, inverse=True)


def raw_numbers(seed: int, stream: int, block: int, size: int) -> npt.NDArray[np.uint64]:
    """Return `size` uniform 64-bit numbers of one block of one stream."""
    raw: npt.NDArray[np.uint64] = np.random.Philox(key=[seed, (stream << 44) + block]).random_raw(size)
    return raw


class Population:
    """The nodes of one type; `stream`, the number of the type, keeps its random numbers apart from others'."""

    def __init__(self, size: int, communities: int, seed: int, stream: int) -> None:
        self.size, self.communities, self.seed, self.stream = size, communities, seed, stream
        self.shuffle = KeyedPermutation(size, (seed, 1, stream))
        # First slot of each community, and the end.
        self.starts = np.array([size * k // communities for k in range(communities + 1)], np.int64)
        self._factors = np.array([_coprime(int(n)) for n in np.diff(self.starts)], np.int64)

    def community_of_ids(self, ids: npt.NDArray[Any]) -> Ids:
        """Return the community of each node id: its label."""
        return self._community_of_slots(self.shuffle.backward(ids))

    def _community_of_slots(self, slots: Ids) -> Ids:
        return np.searchsorted(self.starts, slots, side="right").astype(np.int64) - 1

    def draw_communities(self, unit: npt.NDArray[np.float64]) -> Ids:
        """Return communities drawn in proportion to their sizes."""
        return self._community_of_slots((unit * self.size).astype(np.int64))

    def ids_by_rank(self, community: Ids, share: npt.NDArray[np.float64], *, turned: bool) -> Ids:
        """Return node ids at fraction `share` of the ranks of their community; `turned`: in the order of sources."""
        start = self.starts[community]
        count = self.starts[community + 1] - start
        rank = (share * count).astype(np.int64)
        if turned:
            rank = rank * self._factors[community] % count
        return self.shuffle.forward(start + rank)

    def features(self, block: int, rows: slice, dim: int, signal: float) -> npt.NDArray[np.float32]:
        """Return the feature rows of the ids in `rows`, block number `block`; shape (rows, dim)."""
        number = rows.stop - rows.start
        noise = raw_numbers(self.seed, 16 + self.stream, block, -(-number * dim // 2)).view(np.uint32)
        values = _bell(noise[: number * dim]).reshape(number, dim)
        # The mean of each community is the same for all types of a dataset up to `dim`.
        signs = (raw_numbers(self.seed, 2, 0, self.communities * dim) >> np.uint64(63)).astype(np.float32) * 2 - 1
        means = signs.reshape(self.communities, dim) * np.float32(signal / math.sqrt(dim))
        values += means[self.community_of_ids(np.arange(rows.start, rows.stop))]
        return values


def _coprime(count: int) -> int:
    """Return a multiplier near the golden section of `count` without common factor: it spreads neighbouring ranks."""
    factor = max(1, int(count * 0.6180339887))
    while math.gcd(factor, count) != 1:
        factor += 1
    return factor


def _bell(raw: npt.NDArray[np.uint32]) -> npt.NDArray[np.float32]:
    """Return bell-shaped numbers of mean 0 and variance 1: the sum of the 4 bytes of each number, scaled."""
    pairs = (raw & np.uint32(0x00FF00FF)) + ((raw >> np.uint32(8)) & np.uint32(0x00FF00FF))
    total: npt.NDArray[np.float32] = ((pairs & np.uint32(0xFFFF)) + (pairs >> np.uint32(16))).astype(np.float32)
    total -= np.float32(510)
    total *= np.float32(1 / math.sqrt(4 * (256**2 - 1) / 12))
    return total


def draw_edges(source: Population, target: Population, stream: int, block: int, count: int, homophily: float) -> Ids:
    """Return `count` <= `EDGE_BLOCK` edges of one block, shape (count, 2): source id, destination id.

    Within one type an edge that would be a self loop goes from the next slot instead.
    """
    raw = raw_numbers(target.seed, 64 + stream, block, 5 * count).reshape(5, count)
    units = (raw >> np.uint64(11)).astype(np.float64) * 2.0**-53  # uniform in [0, 1), 53 bits
    target_community = target.draw_communities(units[0])
    source_community = np.where(units[2] < homophily, target_community, source.draw_communities(units[1]))
    u, v = units[3], units[4]
    edges = np.empty((count, 2), np.int64)
    edges[:, 0] = source.ids_by_rank(source_community, u * u * u, turned=True)
    edges[:, 1] = target.ids_by_rank(target_community, v * v, turned=False)
    if source is target:
        loop = np.flatnonzero(edges[:, 0] == edges[:, 1])
        edges[loop, 0] = source.shuffle.forward((source.shuffle.backward(edges[loop, 0]) + 1) % source.size)
    return edges
