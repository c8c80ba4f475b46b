"""Labels in any of the ways datasets write them -> int64, -1 for none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import open_raw
from tiering.datasets.import_context import ImportContext
from tiering.datasets.scratch import chunks, first_wrong
from tiering.errors import InputError

_MAX_LABEL = 2**31 - 1


def make_labels(
    values: npt.NDArray[Any], where: str, num_nodes: int, context: ImportContext, prefixes: tuple[int, ...] = ()
) -> tuple[npt.NDArray[np.int64], int]:
    """Return labels, int64 of shape (num_nodes,), and the number of classes: the largest label + 1.

    `values` are whole numbers as ints or floats; NaN or -1 is no label. There is one per node, or `prefixes` are
    numbers of values that may be there: the nodes behind have no label. The first of `prefixes` is the number of
    labelled nodes, also of more values (padding), unless option ``num_labelled`` says otherwise.
    """
    labelled = context.options.num_labelled
    if labelled is not None:
        prefixes = (*prefixes, labelled)
    elif prefixes:
        labelled = prefixes[0]
    if values.shape[0] not in (num_nodes, *prefixes):
        raise InputError(
            f"{where}: expected {num_nodes} labels, one per node, found {values.shape[0]}; correct the file, or, if "
            "only the first nodes have labels, say so with --num-labelled"
        )
    used = values.shape[0] if labelled is None else min(labelled, values.shape[0])
    if used < num_nodes:
        context.notes["num_labelled"] = used
    row = first_wrong(values[:used], lambda block: _is_wrong(_replace_nan(block)))
    if row is not None:
        raise InputError(
            f"{where}: expected labels 0, 1, 2... (NaN or -1 for none), found {values[row]} at row {row}; correct it, "
            "or write -1 there"
        )
    labels = context.scratch.array(num_nodes, np.int64)
    labels[used:] = -1
    largest = -1
    for part in chunks(used):
        labels[part] = _replace_nan(values[part])
        largest = max(largest, int(labels[part].max()))
    return labels, largest + 1


def open_headerless_labels(path: Path, rows: tuple[int, ...]) -> npt.NDArray[Any]:
    """Map a label file without numpy header as float32 or int64: its size says which, of one of the numbers `rows`."""
    size = path.stat().st_size
    for count in rows:
        for dtype in (np.dtype("<f4"), np.dtype("<i8")):
            if size == count * dtype.itemsize:
                return open_raw(path, dtype, (count,))
    raise InputError(
        f"{path}: has no numpy header, and its {size} bytes are not {rows[0]} labels of float32 "
        f"({rows[0] * 4} bytes) or int64 ({rows[0] * 8} bytes); get the file again, or, if only the first nodes "
        "have labels, say so with --num-labelled"
    )


def _replace_nan(block: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return -1 for NaN; floats as float64, since float16 cannot be compared with the largest label."""
    return block if block.dtype.kind != "f" else np.where(np.isnan(block), -1.0, block.astype(np.float64))


def _is_wrong(block: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    wrong: npt.NDArray[np.bool_] = (block < -1) | (block > _MAX_LABEL)
    return wrong | (block != np.floor(block)) if block.dtype.kind == "f" else wrong
