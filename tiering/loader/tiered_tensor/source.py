"""The source of a tiered tensor, and the placement of its rows: which are copied to which faster memory.

Copied rows have positions 0, 1, ... in the order of the tiers gpu, cpu. The tensor itself follows, in its order.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.reader import find_mapping
from tiering.codecs import AUTO, CODECS, Codec, CodecLoss, LossMeter, fit_codec, float_rows, half_holds
from tiering.errors import BudgetError, InputError
from tiering.formats.features import FEATURE_DTYPES
from tiering.formats.layout import TIERS, TypeLayout
from tiering.formats.scores import Scores
from tiering.formats.ssd_rows import SsdRows
from tiering.loader.tables.delivery import Delivery
from tiering.loader.tables.resident import anonymous
from tiering.memory import AUTO_SHARE, available_memory
from tiering.text.units import format_bytes, parse_size

if TYPE_CHECKING:
    import torch

Ids = npt.NDArray[np.int64]
WHAT = "tiered tensor"  # name in messages
_COPY_BYTES = 64 * 1024 * 1024
_ENCODED_BYTES = 16 * 1024 * 1024  # of the tensor, that are encoded together
_LOOK_BYTES = 1024 * 1024  # in which `AUTO` looks for a number that float16 cannot hold
_MEMORY_FILES = ("/memfd:", "/dev/", "/SYSV", "/anon_hugepage")


@dataclass(frozen=True)
class SourceTensor:
    """Rows of a contiguous tensor, read where they lie, or as a codec stores them."""

    owner: torch.Tensor | npt.NDArray[Any]  # the object that keeps the memory alive
    data: npt.NDArray[np.uint8]  # bytes of all stored rows, shape (rows x bytes of a row,)
    shape: tuple[int, ...]
    dtype: torch.dtype  # of delivered rows
    file: Path | None  # the file on disk that the tensor is mapped from; None for a tensor in memory
    codec: Codec | None = None
    loss: CodecLoss | None = None

    @classmethod
    def of(cls, tensor: Any) -> SourceTensor:
        """View `tensor` as rows; `InputError` if its rows cannot be read in place."""
        import torch

        owner: torch.Tensor | npt.NDArray[Any]
        if isinstance(tensor, torch.Tensor):
            _check_tensor(tensor)
            owner, dtype, contiguous = tensor.detach(), tensor.dtype, tensor.is_contiguous()
        elif isinstance(tensor, np.ndarray) and not isinstance(tensor, np.ma.MaskedArray):
            owner, dtype, contiguous = tensor, _torch_dtype(tensor.dtype), tensor.flags.c_contiguous
        else:
            raise InputError(f"tensor: expected a torch tensor, NumPy array or memmap, found {type(tensor).__name__}")
        shape = tuple(tensor.shape)
        if not shape or math.prod(shape[1:]) == 0:
            raise InputError(f"tensor: expected rows of at least one element, found shape {shape}")
        if not contiguous:
            raise InputError(
                f"tensor: expected a contiguous tensor, found shape {shape}, whose rows cannot be read in place; "
                "pass a contiguous copy (tensor.contiguous(), numpy.ascontiguousarray)"
            )
        flat = owner.reshape(-1)
        data: npt.NDArray[np.uint8] = (
            flat.view(torch.uint8).numpy() if isinstance(flat, torch.Tensor) else np.asarray(flat).view(np.uint8)
        )
        path, _ = find_mapping(data) or (None, 0)
        on_disk = path is not None and not str(path).startswith(_MEMORY_FILES)
        return cls(owner, data, shape, dtype, path if on_disk else None)

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def out_bytes(self) -> int:
        """Bytes of a delivered row."""
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def row_bytes(self) -> int:
        """Bytes of a stored row."""
        return self.out_bytes if self.codec is None else self.codec.row_bytes

    @property
    def delivery(self) -> Delivery:
        """Dtype and bytes of delivered rows: bytes as they are where no codec decodes them."""
        dtype = "uint8" if self.codec is None else str(self.dtype).removeprefix("torch.")
        return Delivery(dtype, self.out_bytes, self.codec)

    def encode(self, name: str, threads: int) -> SourceTensor:
        """Return the rows as the codec `name` stores them, in memory; the tensor itself where that is its dtype."""
        import torch

        if name not in (AUTO, *CODECS):
            raise InputError(f"dtype: expected {', '.join((AUTO, *CODECS))}, found {name!r}")
        dtype, dim = str(self.dtype).removeprefix("torch."), self.row_bytes // self.dtype.itemsize
        if name == AUTO:
            halves = dtype == "float32" and all(half_holds(rows) for _, rows in self._blocks(dtype, _LOOK_BYTES))
            name = "float16" if halves else dtype
        if name == dtype:
            return self
        if dtype not in FEATURE_DTYPES:
            raise InputError(f"dtype: {name} stores {', '.join(FEATURE_DTYPES)}, found a tensor of {dtype}")
        needed, free = self.num_rows * CODECS[name].stored_bytes(dim), available_memory()
        if needed > free:
            raise BudgetError(
                f"dtype: rows as {name} need {format_bytes(needed)}, but only {format_bytes(free)} of memory are "
                "free; use a layout on SSD instead (tiering layout)"
            )
        codec = fit_codec(name, (rows for _, rows in self._blocks(dtype, _ENCODED_BYTES)), dim, dtype, WHAT, threads)
        delivered, meter, stored = codec.delivered(dtype), LossMeter(codec, WHAT), anonymous(needed)
        out = stored.reshape(self.num_rows, codec.row_bytes)
        for first, rows in self._blocks(dtype, _ENCODED_BYTES):
            meter.encode(float_rows(rows, dtype, WHAT, first), threads, out[first : first + len(rows)])
        return SourceTensor(stored, stored, self.shape, getattr(torch, delivered), None, codec, meter.loss())

    def _blocks(self, dtype: str, nbytes: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
        """Yield the rows of a tensor of `dtype` front to back, shape (n, elements), after the number of the first."""
        rows, step = self.data.reshape(-1, self.row_bytes), max(1, nbytes // self.row_bytes)
        for first in range(0, len(rows), step):
            yield first, np.require(rows[first : first + step].view(storage_dtype(dtype)), requirements="A")

    def require_unmoved(self) -> None:
        """Raise `InputError` if torch has moved the tensor (``share_memory_``), which frees the memory read here."""
        if isinstance(self.owner, np.ndarray) or not self.data.size or self.owner.data_ptr() == self.data.ctypes.data:
            return
        raise InputError(
            f"{WHAT}: torch has moved the tensor to other memory (share_memory_, or sending it to a process) after "
            "the tiered tensor was made; share the tensor first, then make the tiered tensor"
        )

    def table(self, data: npt.NDArray[np.uint8]) -> native.TieredTable:
        """Return `data`, bytes of rows, in the ssd tier of a table of the core."""
        ends = [0, 0, 0, data.size // self.row_bytes]
        return native.TieredTable(self.row_bytes, ends, None, [], None, None, ssd=data)

    def copy_rows(self, ids: Ids, threads: int, table_bytes: int = 0) -> npt.NDArray[np.uint8]:
        """Return copies of rows, shared by forks; `BudgetError` unless they and `table_bytes` fit free memory."""
        needed, free = ids.size * self.row_bytes + table_bytes, available_memory()
        if ids.size and needed > free:
            raise BudgetError(
                f"cpu: copies of rows and the table of positions need {format_bytes(needed)}, but only "
                f"{format_bytes(free)} of memory are free; give a smaller cpu, or 'auto'"
            )
        copies, table, step = anonymous(ids.size * self.row_bytes), self.table(self.data), _COPY_BYTES // self.row_bytes
        out = copies.reshape(-1, self.row_bytes)
        for start in range(0, ids.size, max(1, step)):
            table.gather(ids[start : start + max(1, step)], out[start : start + max(1, step)], threads)
        return copies


def _check_tensor(tensor: torch.Tensor) -> None:
    import torch

    kind = str(tensor.layout) if tensor.layout != torch.strided else "quantized" if tensor.is_quantized else ""
    away = tensor.device.type != "cpu"
    refused = {
        f"a dense tensor, found a {kind} one; pass its dense copy": bool(kind),
        f"one in host memory, or a memmap, found one on {tensor.device}; pass tensor.cpu()": away,
        "one that requires no gradient, because gathered rows have none; pass tensor.detach()": tensor.requires_grad,
        "plain values, found a view that is conjugated or negated; pass a copy": tensor.is_conj() or tensor.is_neg(),
    }
    if wrong := next((expected for expected, is_refused in refused.items() if is_refused), None):
        raise InputError(f"tensor: expected {wrong}")


def _torch_dtype(dtype: np.dtype[Any]) -> torch.dtype:
    import torch

    try:
        return torch.from_numpy(np.empty(0, dtype)).dtype
    except (TypeError, ValueError) as error:  # text, structures, the other byte order
        raise InputError(f"tensor: expected elements that torch has a type for, found {dtype} ({error})") from None


@dataclass(frozen=True)
class TensorPlacement:
    """The rows of a tensor that are copied to each tier, and the positions of all rows."""

    source: SourceTensor
    rows: dict[str, Ids]  # row numbers by tier, gpu and cpu
    by_score: bool  # whether rows were chosen by score; else they are the first ones, and positions are row numbers

    @property
    def copied(self) -> int:
        """Number of rows that are copied."""
        return sum(ids.size for ids in self.rows.values())

    @property
    def needs_table(self) -> bool:
        """Whether rows are found by a table of positions."""
        return self.by_score and self.copied > 0

    @property
    def skipped(self) -> int:
        """First rows of the tensor that have no position there: their numbers lead to the copies."""
        return 0 if self.needs_table and self.copied < self.source.num_rows else self.copied

    @property
    def rest(self) -> npt.NDArray[np.uint8]:
        """Bytes of the tensor itself from row `skipped` on."""
        return self.source.data[self.skipped * self.source.row_bytes :]

    def table(self) -> npt.NDArray[Any]:
        """Return the position of each row, shape (rows,)."""
        end = self.copied + self.source.num_rows
        table = np.arange(self.copied, end, dtype=np.int32 if end < 2**31 else np.int64)
        table[np.concatenate([*self.rows.values()])] = np.arange(self.copied, dtype=table.dtype)
        return table

    def entry(self) -> TypeLayout:
        """Return positions by tier; the tensor itself is in the cpu tier, or in the ssd tier if it lies on a disk."""
        count = self.copied + self.source.num_rows - self.skipped  # positions of the copies, and in the tensor itself
        gpu = self.rows["gpu"].size
        ends = [0, gpu, gpu, self.copied if self.source.file is not None else count, count]
        ranges = dict(zip(TIERS, pairwise(ends), strict=True))
        codec, delivery = self.source.codec, self.source.delivery
        dim, name = (delivery.out_bytes, "") if codec is None else (codec.dim, codec.name)
        return TypeLayout("rows", count, dim, delivery.dtype, ranges, SsdRows(0, 0, 1, 0), name)


def place_rows(
    source: SourceTensor, gpu: int, cpu: int, scores: npt.NDArray[np.float64] | None, threads: int
) -> TensorPlacement:
    """Place so many rows into gpu and cpu, the hottest first, ties by row number; a tier keeps the tensor's order."""
    gpu, end = min(source.num_rows, gpu), min(source.num_rows, gpu + cpu)
    order = np.arange(end, dtype=np.int64)
    if scores is not None and end:
        order = native.sort_by_score(scores, threads)[:end].astype(np.int64)
    return TensorPlacement(source, {"gpu": np.sort(order[:gpu]), "cpu": np.sort(order[gpu:])}, scores is not None)


def count_rows(size: str | int, what: str, source: SourceTensor) -> int:
    """Return how many rows a size, or a percentage of the tensor, has room for; ``auto`` of ``cpu``: free memory."""
    parsed, row_bytes = parse_size(size, what), source.row_bytes
    if parsed.auto and what == "cpu":
        room = int(AUTO_SHARE * available_memory()) - 8 * source.num_rows  # for a table of positions
        return max(0, min(source.num_rows, room // row_bytes))
    if parsed.auto:
        raise InputError(f"{what}: expected a size such as 2GiB, or a fraction of the tensor such as 25%, found 'auto'")
    nbytes = parsed.of(source.num_rows * row_bytes)
    if 0 < nbytes < row_bytes <= source.num_rows * row_bytes:
        raise InputError(f"{what}: expected room for at least one row ({row_bytes} bytes), found {size!r}")
    return min(source.num_rows, nbytes // row_bytes)


def parse_order(order: Any, num_rows: int) -> npt.NDArray[np.float64] | None:
    """Return the option `order` as scores: float64, shape (rows,); ``None`` for none."""
    if order is None:
        return None
    if isinstance(order, Scores):
        if len(order.node_types) != 1:
            raise InputError(
                f"order: expected scores of one node type, found {', '.join(order.node_types)}; pass "
                "scores.values(TYPE)"
            )
        order = order.values()
    try:
        if hasattr(order, "detach"):
            order = order.detach().cpu()
            order = (order.double() if order.is_floating_point() else order).numpy()
        values = np.asarray(order)
    except (TypeError, ValueError, RuntimeError) as error:
        raise InputError(f"order: expected one score per row, found {type(order).__name__} ({error})") from None
    if values.dtype.kind not in "fiub":
        raise InputError(f"order: expected real numbers, one score per row, found {values.dtype}")
    if values.shape != (num_rows,):
        raise InputError(f"order: expected one score for each of {num_rows} rows, found shape {values.shape}")
    wide = np.ascontiguousarray(values, np.float64)
    wrong = np.flatnonzero(np.isnan(wide))
    if wrong.size:
        raise InputError(f"order: expected numbers, found NaN as the score of row {wrong[0]}")
    return wide
