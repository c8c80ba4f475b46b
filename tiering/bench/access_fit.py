"""Seconds per access from seconds of whole gathers and whole batches: small least squares without negative answers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.layout.access_costs import AccessCosts

FloatArray = npt.NDArray[np.float64]


def fit_access_costs(
    rows: Sequence[tuple[int, float]], lists: Sequence[tuple[int, int, float]], device: str
) -> AccessCosts:
    """What an access costs more from host memory than from the GPU's.

    Parameters
    ----------
    rows
        Per size of a row: its bytes, and seconds more per row.
    lists
        Per choice of fanouts: lists read, entries drawn, and seconds more for all of them.
    device
        Name of the GPU.

    Raises
    ------
    InputError
        If nothing was slower from host memory: then the measurement is no good.
    """
    base, per_byte = _fit([(1.0, float(nbytes)) for nbytes, _ in rows], [more for _, more in rows])
    per_list, per_entry = _fit([(float(n), float(m)) for n, m, _ in lists], [more for *_, more in lists])
    if not any((base, per_byte, per_list, per_entry)):
        raise InputError("gpu-times: no access was slower from host memory than from the GPU's; measure larger tables")
    return AccessCosts(base, per_byte, per_list, per_entry, source=f"measured on {device}")


def times_document(times: AccessCosts) -> dict[str, object]:
    """The form that ``tiering layout --access-costs`` reads, without what was not measured."""
    document = times.to_json()
    del document["peer_share"], document["ssd_seconds"]
    return {"device": str(document.pop("source")).removeprefix("measured on "), **document}


def _fit(terms: Sequence[tuple[float, float]], seconds: Sequence[float]) -> tuple[float, float]:
    """Two non-negative factors with the least relative error; 0 and 0 where all seconds are negative.

    The best non-negative answer uses both terms, one, or none, and is then the plain least-squares answer of those.
    """
    matrix, found = np.array(terms), np.array(seconds)
    weights = 1 / np.maximum(np.abs(found), np.finfo(float).tiny)
    matrix, found = matrix * weights[:, None], found * weights
    scale = np.maximum(np.abs(matrix).max(axis=0), np.finfo(float).tiny)
    matrix = matrix / scale
    best, least = np.zeros(2), float(found @ found)
    for used in chain.from_iterable(combinations(range(2), count) for count in (1, 2)):
        some = list(used)
        answer = np.zeros(2)
        answer[some] = np.linalg.lstsq(matrix[:, some], found, rcond=None)[0]
        rest = found - matrix @ answer
        if answer.min() >= 0 and float(rest @ rest) < least:
            best, least = answer, float(rest @ rest)
    first, second = best / scale
    return float(first), float(second)
