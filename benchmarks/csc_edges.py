"""Edges to CSC in memory, by the kernels of the import: graphs for benchmarks and tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native

AnyArray = npt.NDArray[Any]
_BUCKETS, _LINE = 1 << 12, 64


def coo_to_csc(
    src: AnyArray, dst: AnyArray, num_src: int, num_dst: int, threads: int = 1
) -> tuple[npt.NDArray[np.int64], AnyArray, npt.NDArray[np.int64]]:
    """Return ``indptr``, ``indices`` and the place of each entry in the input; lists keep the order of the input."""
    edges, shift = int(dst.size), max(0, (num_dst - 1).bit_length() - _BUCKETS.bit_length() + 1)
    indptr, positions = np.full(num_dst + 1, edges), np.empty(edges, np.int64)
    indices = np.empty(edges, np.int32 if num_src < 1 << 31 else np.int64)
    if num_dst:
        counts = native.count_buckets(dst, 0, num_dst, shift, threads)
        widths = np.array([native.scattered_bytes(num_src), 8])
        ends = np.cumsum(-(-edges * widths // _LINE) * _LINE)
        memory, places = np.empty(max(_LINE, int(ends[-1])), np.uint8), np.array([[0, int(ends[0])]])
        parts = [memory[at : at + edges * width] for at, width in zip(places[0], widths, strict=True)]
        native.scatter_edges(src, dst, [None], 0, num_src, num_dst, shift, counts, 0, parts)
        outs, total = [indices.view(np.uint8), positions.view(np.uint8)], counts.sum(0)[None]
        native.sort_runs(memory, places, total, [8], num_dst, shift, num_src, 0, indptr[:-1], outs, threads)
    return indptr, indices, positions
