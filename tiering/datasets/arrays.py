"""Arrays of a dataset: numpy files, tensors, sparse matrices, lists. Imports neither torch nor scipy."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.reader import map_again
from tiering.artifacts.remote_path import RANGE_BYTES, RANGES, RemotePath
from tiering.datasets.import_context import ImportContext, Scratch, chunks
from tiering.errors import InputError, TieringError, quoted
from tiering.formats.dataset import FeatureStream, GraphSoFar
from tiering.formats.features import FEATURE_DTYPES, FeatureTable
from tiering.formats.npy_file import as_column, open_npy
from tiering.formats.times import exact_array

BLOCK_BYTES = 8 << 20  # bytes of rows that are copied together


@dataclass(frozen=True, eq=False)
class SourceArray:
    """An array of a dataset, and where its rows lie."""

    where: str  # name for messages
    array: npt.NDArray[Any]  # the values; bfloat16 as uint16
    dtype: str  # name of the element type
    path: Path  # the file that holds the array, or a name that stands for it
    offset: int | None = None  # bytes of the file before row 0; None if the rows do not lie there one behind the other
    numpy_file: bool = False  # whether a numpy file holds the array: uint16 features are bfloat16 there

    @classmethod
    def convert(cls, value: Any, where: str, path: Path, scratch: Scratch) -> SourceArray:
        """Return a value of a file, or in memory, as a dense array; see `dense_array`."""
        array, dtype = dense_array(value, where, scratch)
        array, offset = map_again(array, path)
        return cls(where, array, dtype, path, offset if array.flags.c_contiguous else None)

    @classmethod
    def open_npy(
        cls, path: Path, what: str, context: ImportContext, *, dates: bool = False, is_table: bool = False
    ) -> SourceArray:
        """Map a numpy file that should hold `what`, perhaps as `dates`, and record it.

        `is_table`: of a remote feature table, read when the graph is written, the array has only dtype and shape.
        """
        file = open_npy(path, what, dates=dates)
        context.record_file(path)
        apart = is_table and isinstance(path, RemotePath)
        array = np.broadcast_to(np.empty((), file.dtype), file.shape) if apart else file.array()
        return cls(str(path), array, str(file.dtype), path, None if file.fortran_order else file.offset, True)

    @property
    def described(self) -> str:
        """``float32 (5, 3)``, for messages."""
        return f"{self.dtype} {self.array.shape}"

    def numbers(self, what: str, kinds: str, words: str) -> npt.NDArray[Any]:
        """Return the array as one column of numbers: see `tiering.formats.npy_file.as_column`."""
        return as_column(widen_rows(self.array, self.dtype), self.where, what, kinds, words)

    def labels(self) -> npt.NDArray[Any]:
        """Return the array as labels: one per node, or a row of several."""
        if self.array.ndim != 2 or 1 in self.array.shape[:1] or self.array.dtype.kind not in "iufb":
            return self.numbers("one label per node", "iufb", "labels as numbers")
        return widen_rows(self.array, self.dtype)

    def rows(self) -> tuple[npt.NDArray[Any], str]:
        """Return the array as feature rows, (rows, dim) as stored, and the name of their dtype."""
        array = self.array
        if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[1] == 0):
            problem = f"expected features of shape (rows, dim), found {self.described}"
            raise InputError(f"{self.where}: {problem}; reshape the features, or omit them")
        if self.dtype in ("uint16", "uint32", "uint64") and not self.numpy_file:
            raise InputError(f"{self.where}: expected features of {', '.join(FEATURE_DTYPES)}, found {self.dtype}")
        name = self.dtype if self.dtype == "bfloat16" else name_feature_dtype(self.where, array.dtype)
        return (array if array.ndim == 2 else array[:, None]).view(storage_dtype(name)), name

    def features(self) -> FeatureTable | FeatureStream:
        """Return node features where they lie, or as rows to be copied into the graph."""
        rows, dtype = self.rows()
        count, dim = rows.shape
        if self.offset is not None:
            return FeatureTable(self.path, count, dim, dtype, self.offset, ndim=self.array.ndim)
        step = max(1, BLOCK_BYTES // (rows.dtype.itemsize * dim))

        def pieces(begin: int, _: GraphSoFar) -> Iterator[tuple[int, npt.NDArray[Any]]]:
            for part in chunks(count - begin, step):
                yield begin + part.start, np.ascontiguousarray(rows[begin + part.start : begin + part.stop])

        memory, ndim = min(rows.nbytes, BLOCK_BYTES), self.array.ndim
        return FeatureStream(count, dim, dtype, pieces, "copied", memory, rows.nbytes, ndim=ndim)


def copy_rows(table: FeatureTable, path: RemotePath) -> FeatureStream:
    """Return the rows of a table in a remote file, to be copied into the graph by ranges."""
    step, dtype = max(1, RANGE_BYTES // table.row_bytes), storage_dtype(table.dtype)

    def pieces(begin: int, _: GraphSoFar) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        with path.open() as file:
            file.seek(table.offset + begin * table.row_bytes)
            for first in range(begin, table.rows, step):
                count = min(step, table.rows - first)
                if len(data := file.read(count * table.row_bytes)) < count * table.row_bytes:
                    path.refuse_change()
                yield first, np.frombuffer(data, dtype).reshape(count, table.dim)

    memory = (RANGES + 2) * RANGE_BYTES
    return FeatureStream(table.rows, table.dim, table.dtype, pieces, "copied", memory, table.bytes, ndim=table.ndim)


def name_feature_dtype(path: Path | str, dtype: np.dtype[np.generic]) -> str:
    """Return the name of the element type of features in a numpy file; refuse all but `FEATURE_DTYPES`."""
    # bfloat16 has no numpy dtype: it comes as uint16, or as 2 raw bytes from the ml_dtypes package.
    if dtype.str in ("<u2", "|V2", "<V2"):
        return "bfloat16"
    if dtype.str == "|b1":
        return "uint8"
    for name in FEATURE_DTYPES:
        if dtype == storage_dtype(name):
            return name
    problem = f"expected features of {', '.join(FEATURE_DTYPES)} (bfloat16 stored as uint16), found {dtype}"
    raise InputError(f"{path}: {problem}; convert them, for example with array.astype('float32')")


def narrow_rows(rows: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """Return rows as a table of `dtype` stores them; ``bfloat16`` is rounded to the nearest, ties to even."""
    if dtype != "bfloat16":
        return rows.astype(storage_dtype(dtype), copy=False)
    bits = rows.view(np.uint32)
    rounded = bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    np.copyto(rounded, bits | np.uint32(1 << 22), where=np.isnan(rows))  # rounding might make infinity of it, or zero
    stored: npt.NDArray[Any] = (rounded >> np.uint32(16)).astype(storage_dtype(dtype))
    return stored


def dense_array(value: Any, where: str, scratch: Scratch) -> tuple[npt.NDArray[Any], str]:
    """Return a value (tensor, sparse matrix, list...) as a dense array, and the name of its dtype; `where` is shown.

    ``bfloat16`` is stored as ``uint16``; what is made dense is taken off the budget of `scratch`.
    """
    try:
        array, dtype = _convert(value, where, scratch)
        if array.dtype.kind not in "biufcV" or array.dtype.char == "g":  # g: longer than 64 bits
            raise TypeError(quoted(value))
    except TieringError:
        raise
    except Exception as error:  # torch, scipy, and whatever class the value is of, raise anything
        reason = f"{type(value).__name__}: {' '.join(str(error).split())[:120]}"
        raise InputError(f"{where}: expected numbers as a dense array, found {reason}; convert it") from error
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("=")), dtype


def widen_rows(array: npt.NDArray[Any], dtype: str) -> npt.NDArray[Any]:
    """Return an array of `dtype` as numpy computes with it: ``bfloat16`` as ``float32``."""
    return array if dtype != "bfloat16" else (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def is_sparse(value: Any) -> bool:
    """Return whether a value is a sparse matrix of torch, torch_sparse or scipy."""
    return "torch.sparse" in str(getattr(value, "layout", "")) or hasattr(value, "nnz")


def _convert(value: Any, where: str, scratch: Scratch) -> tuple[npt.NDArray[Any], str]:
    if hasattr(value, "to_torch_sparse_coo_tensor"):  # of torch_sparse
        value = value.to_torch_sparse_coo_tensor()
    if (torch := sys.modules.get("torch")) is not None and isinstance(value, torch.Tensor):
        return _convert_tensor(torch, value, where, scratch)
    if isinstance(value, (list, tuple)) and value and not isinstance(value[0], (bool, int, float, np.generic)):
        value = np.stack([widen_rows(*dense_array(part, where, scratch)) for part in value])
    if np.ma.is_masked(value):
        raise InputError(f"{where}: expected a plain array, found a masked array; fill it with filled()")
    if is_sparse(value):
        _take_memory(value.shape, value.dtype.itemsize, where, scratch)
        value = value.toarray()
    array = exact_array(value, where)
    if array.dtype == object and array.ndim:
        array = np.array(array.tolist())
    return array, array.dtype.name


def _convert_tensor(torch: Any, tensor: Any, where: str, scratch: Scratch) -> tuple[npt.NDArray[Any], str]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    if dtype != "bfloat16" and dtype not in np.sctypeDict:
        problem = f"expected a dtype of numpy or bfloat16, found {dtype}"
        raise InputError(f"{where}: {problem}; give tensor.to(torch.float32), or dequantize it")
    tensor = tensor.detach().cpu()
    if tensor.layout is not torch.strided:
        _take_memory(tensor.shape, tensor.element_size(), where, scratch)
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    if dtype == "bfloat16":
        return tensor.view(torch.int16).numpy().view(np.uint16), dtype
    return tensor.numpy(), dtype


def _take_memory(shape: Any, item_bytes: int, where: str, scratch: Scratch) -> None:
    nbytes = math.prod(shape) * item_bytes
    scratch.budget.require(nbytes, f"the values of {where}, a sparse matrix, made dense")
    scratch.budget = scratch.budget.without(nbytes)
