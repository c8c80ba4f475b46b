"""What one read of an adjacency list touches: its begin and end, and the entries drawn."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

INDPTR_BYTES = 16
"""Begin and end of a list."""


def list_read_bytes(
    degrees: npt.NDArray[np.int64], index_bytes: int, sampler: str, fanouts: Sequence[int]
) -> npt.NDArray[np.float64]:
    """Bytes that a read of each list touches.

    Begin and end (16 bytes) and the entries drawn: ``min(fanout, degree)``, all for fanout -1 and for ``ladies``, one
    for each step of a ``pinsage`` walk. Where hops have different fanouts, the mean over those that read the relation
    at all. Edge data such as weights come on top.

    Parameters
    ----------
    degrees
        int64, shape (nodes,): length of each list.
    index_bytes
        Bytes of an entry.
    sampler
        One of `tiering.sampling.SAMPLERS`.
    fanouts
        The relation's, hop by hop.

    Returns
    -------
    numpy.ndarray
        float64, shape (nodes,).
    """
    if sampler == "ladies":
        entries = degrees.astype(np.float64)
    elif sampler == "pinsage":
        entries = np.minimum(degrees, 1).astype(np.float64)
    else:
        drawn = [degrees if fanout < 0 else np.minimum(degrees, fanout) for fanout in fanouts if fanout]
        entries = sum(drawn, np.zeros(degrees.size)) / max(1, len(drawn))
    return INDPTR_BYTES + index_bytes * entries
