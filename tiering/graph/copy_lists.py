"""Lists by destination become a relation as they are: checked, and copied front to back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.reader import chunks
from tiering.artifacts.writer import ArtifactWriter
from tiering.formats.shape import value_bytes
from tiering.graph.plan import RelationPlan, copied_entries
from tiering.progress import progress

AnyArray = npt.NDArray[Any]
COPIED_IDS = copied_entries(8)


def write_copied(writer: ArtifactWriter, folder: str, relation: RelationPlan) -> None:
    """Write ``indptr``, ``indices`` and the arrays that run along the edges.

    A killed run goes on from the first block that is missing. An id out of range raises `ValueError`, which names the
    edge. Memory: `tiering.graph.plan.copy_memory`.
    """
    edges, csc = relation.edges, relation.csc
    with progress(csc.num_edges, "copy", "edge", scale=True) as bar:
        _write(writer, f"{folder}/indptr", relation.lists.indptr, np.dtype(np.int64))
        with writer.file(f"{folder}/indices", f"int{8 * csc.id_bytes}", (csc.num_edges,)) as file:
            for first, end, (ids,) in chunks([edges.src], COPIED_IDS):
                _check(ids, first, csc.num_src)
                file.append(ids.astype(f"int{8 * csc.id_bytes}", copy=False))
                bar.update(end - first)
    for name, values in zip(csc.values, relation.values(), strict=True):
        if values is None:
            with writer.file(f"{folder}/{name}", "int64", (csc.num_edges,)) as file:
                for part in _numbers(csc.num_edges):
                    file.append(part)
        else:
            _write(writer, f"{folder}/{name}", values, np.dtype(np.int64) if name == "edge_ids" else values.dtype)


def _write(writer: ArtifactWriter, name: str, values: AnyArray, dtype: np.dtype[Any]) -> None:
    with writer.file(name, dtype.name, values.shape) as file:
        for _, _, (part,) in chunks([values], copied_entries(max(8, value_bytes(values)))):
            file.append(part.astype(dtype, copy=False))


def _numbers(count: int) -> Iterator[npt.NDArray[np.int64]]:
    for first in range(0, count, COPIED_IDS):
        yield np.arange(first, min(count, first + COPIED_IDS))


def _check(ids: AnyArray, first: int, count: int) -> None:
    if int(ids.min()) < 0 or int(ids.max()) >= count:
        edge = int(np.argmax((ids < 0) | (ids >= count)))
        bounds = f"outside 0..{count - 1}" if count else "impossible: there are no nodes"
        raise ValueError(f"edge {first + edge}: source id {int(ids[edge])} is {bounds}")
