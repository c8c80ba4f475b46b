"""Bytes that one read of an adjacency list touches: its begin and end, and the entries drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

INDPTR_BYTES = 16
"""Begin and end of a list."""


def list_read_entries(degrees: npt.NDArray[np.int64], sampler: str, fanouts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return entries that a read of each list draws, from the lists' lengths and the relation's fanouts, hop by hop.

    ``min(fanout, degree)``, all for fanout -1 and for ``ladies``, one for each step of a ``pinsage`` walk. Where hops
    have different fanouts, the mean over those that read the relation at all.
    """
    if sampler == "ladies":
        return degrees.astype(np.float64)
    if sampler == "pinsage":
        return np.minimum(degrees, 1).astype(np.float64)
    entries, reading = np.zeros(degrees.size), [fanout for fanout in fanouts if fanout]
    for fanout in reading:
        entries += degrees if fanout < 0 else np.minimum(degrees, fanout)
    return entries / max(1, len(reading))


SUMS_PER_SECTOR = 4
"""Sums of weights, 8 bytes each, in the at least 32 bytes that a GPU reads."""


def list_read_places(degrees: npt.NDArray[np.int64], sampler: str, fanouts: Sequence[int]) -> npt.NDArray[np.float64]:
    """Return the number of separate positions that a read of each list looks at: entries drawn, and sums for draws.

    Only ``weighted`` reads sums of weights: all of a list no longer than the fanout, side by side; of a longer one
    those that a binary search meets, ``ceil(log2(degree + 1))`` for each draw.
    """
    entries = list_read_entries(degrees, sampler, fanouts)
    if sampler != "weighted":
        return entries
    search, reading = np.ceil(np.log2(degrees + 1.0)), [fanout for fanout in fanouts if fanout]
    for fanout in reading:
        whole = degrees <= fanout if fanout > 0 else True
        entries += np.where(whole, degrees / SUMS_PER_SECTOR, fanout * search) / len(reading)
    return entries


def list_read_bytes(
    degrees: npt.NDArray[np.int64], index_bytes: int, sampler: str, fanouts: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Return the bytes that a read of each list touches: begin and end, and the entries drawn, of `index_bytes` each.

    Edge data such as weights come on top.
    """
    return INDPTR_BYTES + index_bytes * list_read_entries(degrees, sampler, fanouts)
