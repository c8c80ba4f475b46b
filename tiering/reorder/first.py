"""Nodes that the user puts first, whatever their score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import id_bytes
from tiering.artifacts.reader import chunks
from tiering.errors import InputError
from tiering.formats.shape import SizedGraph
from tiering.formats.user_arrays import UserArray, UserValues, read_user_arrays

CHUNK = 1 << 20  # ids read together
OPTION = "--first"


def read_first(graph: SizedGraph, values: UserValues) -> dict[str, UserArray]:
    """Return the nodes that come first, by node type; at least one of each type that is named.

    `InputError` unless each is an original id, named once. Memory: a byte for each node of a type.
    """
    arrays = read_user_arrays(graph, values, "node ids", OPTION, "iu")
    for node_type, array in arrays.items():
        if not array.values.size:
            raise InputError(f"{array.where}: expected node ids, found none; leave {OPTION} out")
        _check(array, node_type, graph.num_nodes(node_type))
    return {node_type: arrays[node_type] for node_type in graph.node_types if node_type in arrays}


def first_mask(array: UserArray, count: int) -> npt.NDArray[np.bool_]:
    """Return a mask of the nodes that come first, shape (count,)."""
    marked = np.zeros(count, bool)
    for _, _, (ids,) in chunks([array.values], CHUNK):
        marked[ids] = True
    return marked


def pieces(array: UserArray, count: int) -> Iterator[npt.NDArray[Any]]:
    """Yield the ids in their order, some at a time, as orders of `count` nodes keep them."""
    for _, _, (ids,) in chunks([array.values], CHUNK):
        yield ids.astype(f"i{id_bytes(count)}")


def first_digests(first: Mapping[str, UserArray]) -> dict[str, str]:
    """Return a digest of the first nodes of each type, for the record."""
    return {f"first of {node_type}": array.digest for node_type, array in first.items()}


def _check(array: UserArray, node_type: str, count: int) -> None:
    for first, _, (ids,) in chunks([array.values], CHUNK):
        wrong = np.flatnonzero((ids < 0) | (ids >= count))
        if wrong.size:
            bounds = f"original ids 0..{count - 1} of type {node_type!r}" if count else f"nodes of type {node_type!r}"
            raise InputError(
                f"{array.where}: expected {bounds}, found {ids[wrong[0]]} at position {first + wrong[0]}; correct it"
            )
    if int(np.count_nonzero(first_mask(array, count))) != array.values.size:
        ids, times = np.unique(array.values, return_counts=True)
        raise InputError(
            f"{array.where}: expected each node once, found {int(ids[np.argmax(times > 1)])} repeated; correct it"
        )
