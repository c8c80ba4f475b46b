"""A graph under new ids by the kernels of `tiering reorder`, as it calls them where everything fits in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import native


def relabel_graph(
    indptr: npt.NDArray[np.int64], indices: Any, columns: Any, sources: Any, threads: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Return ``indptr`` and ``indices`` under new ids: `columns` and `sources` hold the new id of each node."""
    new_indptr = native.relabel_indptr(indptr, columns, threads)
    starts = new_indptr[: np.searchsorted(new_indptr, indices.size)]
    entries = np.empty(4 * indices.size, np.uint8)
    native.place_indices(indices, 0, indptr, columns, sources.size, 0, 0, starts, entries, threads)
    native.rename_sources(entries, sources, 0, sources.size, threads)
    return new_indptr, entries.view(np.int32)
