"""Whether the content of a dataset's files is plausible, by a sample: before hours of work begin."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import open_raw
from tiering.datasets.sources.source import Defect, Source, SourceFile, relation_of
from tiering.datasets.sources.tree import arrays
from tiering.errors import InputError
from tiering.formats.npy_file import is_npy, open_npy

PLACES, RUN = 64, 64
"""Places of a file that are looked at, evenly spaced with the first and the last, and entries at each."""
SUSPICIOUS = 0.5
"""Share of the sampled rows from which zeros are worth a warning."""


def check_samples(source: Source, root: Path, warn: Callable[[str], None]) -> None:
    """Look at `PLACES` of each array: ids that are no node's and known defects are refused, with the cure; rows of
    zeros or with NaN are told to `warn`.
    """
    for file, path in arrays(source, root):
        array = _mapped(file, path) if file.holds in ("edges", "features") else None
        if array is None or not array.size:
            continue
        if file.holds == "edges":
            _check_ids(source, file, path, array)
        elif file.holds == "features":
            _check_rows(path, array, warn)
            for defect in source.defects:
                if defect.check is not None and defect.check.get("file") == file.path:
                    _check_tail(source, defect, path, array)


def _mapped(file: SourceFile, path: Path) -> npt.NDArray[Any] | None:
    if is_npy(path):
        return open_npy(path, file.holds).array()
    if file.shape is None or not file.headerless:
        return None
    dtype = np.dtype(file.dtypes[0])
    rows = path.stat().st_size // (dtype.itemsize * math.prod(file.shape[1:]))
    return open_raw(path, dtype, (rows, *file.shape[1:]))


def _samples(rows: int) -> Iterator[slice]:
    starts = np.linspace(0, max(0, rows - RUN), min(PLACES, -(-rows // RUN)), dtype=np.int64)
    for start in np.unique(starts):
        yield slice(int(start), min(rows, int(start) + RUN))


def _check_ids(source: Source, file: SourceFile, path: Path, array: npt.NDArray[Any]) -> None:
    pairs = array if array.shape[1] == 2 else array.T
    relation = relation_of(str(file.of))
    for part in _samples(pairs.shape[0]):
        block = np.asarray(pairs[part])
        for column, (node_type, end) in enumerate(((relation[0], "source"), (relation[2], "destination"))):
            ids, count = block[:, column], source.nodes.get(node_type)
            wrong = (ids < 0) | (ids >= (count if count is not None else np.iinfo(np.int64).max))
            if wrong.any():
                edge = int(np.argmax(wrong))
                raise InputError(
                    f"{path}: edge {part.start + edge}: expected a {end} id in 0..{(count or 0) - 1} ({node_type} "
                    f"nodes of {source.name}), found {int(ids[edge])}; get the file again, or give another --spec"
                )


def _check_rows(path: Path, array: npt.NDArray[Any], warn: Callable[[str], None]) -> None:
    looked = zeros = 0
    for part in _samples(array.shape[0]):
        rows = np.asarray(array[part])
        looked, zeros = looked + rows.shape[0], zeros + int(np.count_nonzero(~rows.any(axis=1)))
        if rows.dtype.kind == "f" and np.isnan(rows).any():
            row = part.start + int(np.argmax(np.isnan(rows).any(axis=1)))
            warn(f"{path}: row {row} has values that are NaN")
            break
    if zeros > SUSPICIOUS * looked:
        warn(f"{path}: {zeros} of {looked} sampled rows are zeros; was a download interrupted?")


def _check_tail(source: Source, defect: Defect, path: Path, array: npt.NDArray[Any]) -> None:
    check = defect.check or {}
    tail = array[max(0, array.shape[0] - int(check["rows"])) :]
    if not any(np.asarray(tail[part]).any() for part in _samples(tail.shape[0])):
        raise InputError(
            f"{path}: {defect.text} ({defect.id}) So it is here. {defect.cure} To import it as it is, leave "
            f"--spec {source.name} out"
        )
