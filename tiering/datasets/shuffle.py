"""A random-looking bijection of 0..n-1 that needs no table: any element of a permutation, in O(1) memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_ROUNDS = 3


class Shuffle:
    """Permutation of 0..size-1 chosen by a key.

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
        raw = np.random.Philox(np.random.SeedSequence(list(key))).random_raw(2 * _ROUNDS)
        self._odd = [np.uint64(int(x) | 1) & self._mask for x in raw[:_ROUNDS]]
        self._add = [np.uint64(int(x)) & self._mask for x in raw[_ROUNDS:]]
        self._odd_inverse = [np.uint64(pow(int(x), -1, 2**bits)) for x in self._odd]

    def _round_trip(self, x: npt.NDArray[np.uint64], inverse: bool) -> npt.NDArray[np.uint64]:
        x = x.copy()
        for i in reversed(range(_ROUNDS)) if inverse else range(_ROUNDS):
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
