"""An edge list as it arrives from disk: chunk by chunk, with the values that run along the edges."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.reader import chunks
from tiering.formats.protocols import EdgeData
from tiering.progress import progress

AnyArray = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]


@dataclass
class Chunk:
    """Consecutive edges of a list; `first` is the number of the first of them."""

    first: int
    src: AnyArray
    dst: AnyArray
    values: list[Bytes | None]
    """Shape (edges, bytes of a value); ``None``: the numbers of the edges."""


def edge_chunks(edges: EdgeData, values: list[AnyArray | None], step: int) -> Iterator[Chunk]:
    """The edge list as it arrives; a chunk is valid until the next is asked for."""
    arrays = [edges.dst, edges.src, *(array for array in values if array is not None)]
    with progress(edges.num_edges, "scatter", "edge", scale=True) as bar:
        for first, end, (dst, src, *parts) in chunks(arrays, step):
            given = iter(parts)
            own = [None if array is None else _bytes_of(next(given), array is edges.edge_ids) for array in values]
            yield Chunk(first, src, dst, own)
            bar.update(end - first)


def _bytes_of(part: AnyArray, ids: bool) -> Bytes:
    """Bytes of values, shape (edges, bytes of a value); `ids` become int64."""
    if ids:
        part = part.astype(np.int64, copy=False)
    if part.ndim > 1:
        part = np.ascontiguousarray(part)
    return part.reshape(part.shape[0], -1).view(np.uint8)
