"""Labels: any of the ways datasets write them -> int64, -1 for none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.regular import require_file
from tiering.artifacts.storage import open_raw
from tiering.datasets.npy_file import is_npy, read_header
from tiering.datasets.reading import Reading, chunks
from tiering.errors import InputError

_MAX_LABEL = 2**31 - 1


def label_rows(path: Path) -> int | None:
    """Rows of a label file with numpy header; ``None`` for a headerless one."""
    if not is_npy(path):
        return None
    header = read_header(path, "labels")
    if not header.shape:
        raise InputError(f"{path}: expected labels of shape (N,), found one value, shape (); get or write it again")
    return header.shape[0]


def read_labels(
    path: Path, num_nodes: int, reading: Reading, *, prefixes: tuple[int, ...] = (), headerless: bool = False
) -> tuple[npt.NDArray[np.int64], int]:
    """Read and check labels.

    Parameters
    ----------
    path
        Label file, shape (N,) or (N, 1): whole numbers as ints or floats; NaN or -1 is no label.
    num_nodes
        N.
    reading
        Options (`num_labelled`) and record.
    prefixes
        Numbers of rows that a shorter file may have: the nodes behind have no label. The first of them is the
        number of labelled nodes, also in a longer file (padding), unless `num_labelled` says otherwise.
    headerless
        Whether a file without numpy header is taken as raw float32 or int64, told by its size.

    Returns
    -------
    labels : int64 array of shape (num_nodes,)
    num_classes : int
        Largest label + 1.

    Raises
    ------
    InputError
        If the length does not fit, or a value is no whole number of -1 or more; names the row.
    """
    require_file(path, "labels")
    reading.used(path)
    labelled = reading.options.num_labelled
    if labelled is not None:
        prefixes = (*prefixes, labelled)
    elif prefixes:
        labelled = prefixes[0]
    raw = headerless and not is_npy(path)
    values = _open_headerless(path, num_nodes, prefixes) if raw else _open(path, num_nodes)
    if values.shape[0] != num_nodes and values.shape[0] not in prefixes:
        raise InputError(
            f"{path}: expected {num_nodes} labels, one per node, found {values.shape[0]}; correct the file, or, if "
            "only the first nodes have labels, say so with --num-labelled"
        )
    used = values.shape[0] if labelled is None else min(labelled, values.shape[0])
    if used < num_nodes:
        reading.notes["num_labelled"] = used
    labels = reading.scratch.array(num_nodes, np.int64)
    labels[used:] = -1
    return labels, _convert(path, values[:used], labels) + 1


def _open(path: Path, num_nodes: int) -> npt.NDArray[Any]:
    header = read_header(path, "labels of shape (N,)")
    values = header.open_column()
    if values.ndim != 1:
        raise InputError(
            f"{path}: expected one label per node, shape ({num_nodes},), found {header.described}; "
            "several labels per node are not supported, choose one column"
        )
    return values


def _open_headerless(path: Path, num_nodes: int, prefixes: tuple[int, ...]) -> npt.NDArray[Any]:
    size = path.stat().st_size
    for rows in (num_nodes, *prefixes):
        for dtype in (np.dtype("<f4"), np.dtype("<i8")):
            if size == rows * dtype.itemsize:
                return open_raw(path, dtype, (rows,))
    raise InputError(
        f"{path}: has no numpy header, and its {size} bytes are not {num_nodes} labels of float32 "
        f"({num_nodes * 4} bytes) or int64 ({num_nodes * 8} bytes); get the file again, or, if only the first nodes "
        "have labels, say so with --num-labelled"
    )


def _convert(path: Path, values: npt.NDArray[Any], labels: npt.NDArray[np.int64]) -> int:
    """Copy checked values to the front of `labels`; returns the largest, -1 if there is none."""
    if values.dtype.kind not in "iufb":
        raise InputError(f"{path}: expected labels as whole numbers, found dtype {values.dtype}; convert them")
    largest = -1
    for part in chunks(values.shape[0]):
        block = values[part]
        if block.dtype.kind == "f":
            block = block.astype(np.float64)  # float16 cannot be compared with the largest label
            block[np.isnan(block)] = -1
        wrong = (block < -1) | (block > _MAX_LABEL)
        if block.dtype.kind == "f":
            wrong |= block != np.floor(block)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise InputError(
                f"{path}: expected labels 0, 1, 2... (NaN or -1 for none), found {values[part][row]} at row "
                f"{part.start + row}; correct it, or write -1 there"
            )
        labels[part] = block
        largest = max(largest, int(labels[part].max()))
    return largest
