"""Ids of nodes that callers have, mostly those of the source, turned into the ranks of a layout and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.errors import InputError
from tiering.formats.graph import Graph, checked_range

Ids = npt.NDArray[np.int64]
_MEANING = {"original": "original ids", "rank": "ranks"}


class NodeIds:
    """A caller's ids of nodes: those of the source (``original``), or ranks (``rank``)."""

    def __init__(self, graph: Graph, kind: str = "original") -> None:
        if kind not in _MEANING:
            raise InputError(f"ids: expected original (ids of the source) or rank, found {kind!r}")
        self.kind = kind
        """``original`` or ``rank``."""
        self._graph, self._ordered = graph, graph.order is not None

    def ranks(self, node_type: str, nodes: Any, what: str) -> Ids:
        """Return the ranks of nodes given by ids, or by a mask over these: torch, NumPy or lists."""
        array = as_array(nodes)
        count, meaning = self._graph.num_nodes(node_type), _MEANING[self.kind]
        if array.dtype == np.bool_:
            if array.shape != (count,):
                raise InputError(f"{what}: expected a mask of shape ({count},), one for each node, found {array.shape}")
            array = np.flatnonzero(array)
        if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
            raise InputError(
                f"{what}: expected {meaning}, whole numbers of one dimension, found {array.dtype} of shape "
                f"{array.shape}"
            )
        ids = array.astype(np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < count:
            at = int(np.flatnonzero((ids < 0) | (ids >= count))[0])
            raise InputError(f"{what}: entry {at} is {ids[at]}; expected {meaning} of {node_type!r}, 0 .. {count - 1}")
        return self.to_ranks(node_type, ids) if self.kind == "original" else ids

    def from_ranks(self, node_type: str, ranks: Ids) -> Ids:
        """Return the caller's ids of ranks."""
        return self.originals(node_type, ranks) if self.kind == "original" else ranks

    def to_ranks(self, node_type: str, originals: Ids) -> Ids:
        """Return the ranks of ids of the source, which are not checked."""
        return self._mapped("old_to_new", node_type, originals)

    def originals(self, node_type: str, ranks: Ids) -> Ids:
        """Return the ids of the source of ranks, which are not checked."""
        return self._mapped("new_to_old", node_type, ranks)

    def _mapped(self, name: str, node_type: str, ids: Ids) -> Ids:
        """Return the entries of a map of the graph's order; `FormatError` if one is no node."""
        if not self._ordered:
            return ids
        nodes = getattr(self._graph, name)(node_type)[ids].astype(np.int64)
        return checked_range(nodes, self._graph.num_nodes(node_type), self._graph, f"{name} of node type {node_type!r}")


def as_array(values: Any) -> npt.NDArray[Any]:
    """Return a tensor on any device, an array or a list as a NumPy array."""
    return np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
