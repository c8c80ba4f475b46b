"""Ids of the source, as other libraries' scripts have them, turned into the ranks of a layout."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.formats.graph import Graph


def ranks_of(graph: Graph, node_type: str, given: Any, what: str) -> npt.NDArray[np.int64]:
    """Ranks of nodes given by original ids, or by a mask over these: torch, NumPy or lists."""
    array = np.asarray(given.detach().cpu().numpy() if hasattr(given, "detach") else given)
    count = graph.num_nodes(node_type)
    if array.dtype == np.bool_:
        if array.shape != (count,):
            raise InputError(f"{what}: expected a mask of shape ({count},), one for each node, found {array.shape}")
        array = np.flatnonzero(array)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(
            f"{what}: expected original ids, whole numbers of one dimension, found {array.dtype} of shape {array.shape}"
        )
    ids = array.astype(np.int64)
    if ids.size and not 0 <= ids.min() <= ids.max() < count:
        at = int(np.flatnonzero((ids < 0) | (ids >= count))[0])
        raise InputError(f"{what}: entry {at} is {ids[at]}; expected original ids of {node_type!r}, 0 .. {count - 1}")
    return ids if graph.order is None else graph.old_to_new(node_type)[ids].astype(np.int64)
