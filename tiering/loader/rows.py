"""Rows that are gathered by rank: what all feature tables have in common, and what those in host memory have."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.errors import BudgetError, CapabilityError, InputError, StorageError, TieringError
from tiering.formats.layout import TIERS, TypeLayout
from tiering.loader.counters import Counters
from tiering.loader.engines import note_fallback
from tiering.loader.require_torch import require_torch
from tiering.units import format_bytes, format_count

if TYPE_CHECKING:
    import torch

ALIGNMENT = 4096
"""Outputs begin at a multiple of this, so that direct reads of whole sectors can land in them."""


class Gatherable(Protocol):
    """Anything a loader can take features from."""

    def gather(self, ids: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        """Rows of `ids` in request order."""


class FeatureRows:
    """Rows of one node type that can be gathered by rank. Use as a context manager, or call `close`."""

    def __init__(self, where: str, entry: TypeLayout) -> None:
        self._where = where
        self._entry = entry
        self._closed = False
        self.counters = Counters()
        """What each tier served since open or `reset_counters`."""

    @property
    def node_type(self) -> str:
        """Node type whose rows these are."""
        return self._entry.node_type

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, elements per row)."""
        return self._entry.num_nodes, self._entry.dim

    @property
    def dim(self) -> int:
        """Elements per row."""
        return self._entry.dim

    @property
    def dtype(self) -> str:
        """Element type: a NumPy name or ``bfloat16``."""
        return self._entry.dtype

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self._entry.row_bytes

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __len__(self) -> int:
        return self._entry.num_nodes

    def placement(self) -> dict[str, dict[str, Any]]:
        """Per tier: ``ranks`` (half-open), ``rows``, ``bytes`` and ``where`` the rows really are."""
        return {
            tier: {
                "ranks": list(self._entry.ranges[tier]),
                "rows": self._entry.rows(tier),
                "bytes": self._entry.rows(tier) * self.row_bytes,
                "where": self._place(tier) if self._entry.rows(tier) else "empty",
            }
            for tier in TIERS
        }

    def reset_counters(self) -> None:
        """Begin counting again at zero."""
        self.counters.reset()

    def close(self) -> None:
        """Give memory and descriptors back. Gathers that are under way end first; later ones raise."""
        self._closed = True

    def _place(self, tier: str) -> str:
        """Where the rows of a tier are, for people; the tier is not empty."""
        return "host memory"

    def __reduce__(self) -> tuple[Any, ...]:
        raise CapabilityError(
            f"{self._where}: node type {self.node_type!r}: {type(self).__name__} lie in the memory of one process and "
            "cannot be pickled; pickle the layout, and open the features in the other process"
        )

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.closed:
            return f"<{name} {self.node_type!r} (closed)>"
        tiers = "; ".join(
            f"{tier} {format_count(place['rows'])} rows in {place['where']}"
            for tier, place in self.placement().items()
            if place["rows"]
        )
        return f"<{name} {self.node_type!r} {self.shape} {self.dtype}: {tiers or 'no rows'}>"

    def _closed_error(self) -> InputError:
        return InputError(f"{self._where}: node type {self.node_type!r}: the features were closed")

    def _no_room(self, rows: int) -> BudgetError:
        return BudgetError(
            f"{self._where}: node type {self.node_type!r}: no memory to gather {format_count(rows)} rows "
            f"({format_bytes(rows * self.row_bytes)}); gather fewer ids at a time"
        )

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class HostRows(FeatureRows):
    """Rows that arrive in host memory."""

    def __init__(self, where: str, entry: TypeLayout, table: native.TieredTable, threads: int) -> None:
        super().__init__(where, entry)
        self._table: native.TieredTable | None = table
        self._threads = threads

    def gather(self, ids: Any, out: torch.Tensor | None = None, device: str | None = None) -> torch.Tensor:
        """Rows of `ids`, in request order, as a torch tensor.

        Parameters
        ----------
        ids
            Ranks: torch or NumPy, int32 or int64, shape (n,), each in 0..rows-1; may repeat.
        out
            Contiguous CPU tensor of shape (n, dim) and this table's dtype to fill; a new one otherwise.
        device
            ``cpu`` (the default): for rows in the memory of a GPU open the table with ``device="cuda"``.

        Raises
        ------
        InputError
            If an id is out of range (nothing is written then), or ids or `out` have the wrong shape or dtype.
        FormatError
            If the table was opened with ``verify=True`` and a page is damaged; `out` is then unspecified.
        BudgetError
            If there is no memory for so many rows.
        StorageError
            If the ssd tier cannot be read; `out` is then unspecified.

        Notes
        -----
        Reads of the ssd tier are submitted first; rows in memory are copied while they are in flight. Rows of one page,
        and rows that repeat, are read once per call. Safe to call from several threads; ssd reads take turns. A forked
        child goes on with the table; a fork waits for reads that are under way.
        """
        require_torch()
        import torch

        if device is not None and torch.device(device).type != "cpu":
            raise CapabilityError(
                f"device={device!r}: this table's rows arrive in host memory; open it with features(device={device!r})"
            )
        wanted = as_ids(ids)
        dtype: torch.dtype = getattr(torch, self.dtype)
        if out is None:
            try:
                out = self._new_tensor(len(wanted), dtype)
            except RuntimeError as error:  # torch's word for it
                raise self._no_room(len(wanted)) from error
        elif not isinstance(out, torch.Tensor):
            raise InputError(f"out: expected a tensor, found {type(out).__name__}; gather_numpy fills NumPy arrays")
        elif tuple(out.shape) != (len(wanted), self.dim) or out.dtype != dtype or not dense(out):
            raise InputError(
                f"out: expected a contiguous {dtype} tensor of shape ({len(wanted)}, {self.dim}), "
                f"found {out.dtype} {tuple(out.shape)}{'' if dense(out) else ', not contiguous'}"
            )
        elif out.device.type != "cpu":
            raise CapabilityError(f"out: expected a tensor in host memory, found one on {out.device}")
        self._fill(wanted, out.detach().view(torch.uint8).numpy())
        return out

    def gather_numpy(self, ids: Any, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Like `gather`, as a NumPy array; ``bfloat16`` comes as ``uint16``. Needs no torch."""
        wanted = as_ids(ids)
        dtype, shape = storage_dtype(self.dtype), (len(wanted), self.dim)
        if out is None:
            nbytes = len(wanted) * self.row_bytes
            try:
                raw = np.empty(nbytes + ALIGNMENT, np.uint8)
            except MemoryError as error:
                raise self._no_room(len(wanted)) from error
            start = -raw.ctypes.data % ALIGNMENT
            out = raw[start : start + nbytes].view(dtype).reshape(shape)
        elif not isinstance(out, np.ndarray):
            raise InputError(f"out: expected a NumPy array, found {type(out).__name__}; gather fills tensors")
        elif out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
            raise InputError(
                f"out: expected a writeable C-contiguous {dtype} array of shape {shape}, found {out.dtype} {out.shape}"
            )
        self._fill(wanted, out.view(np.uint8).reshape(len(wanted), self.row_bytes))
        return out

    def close(self) -> None:
        """Give memory and descriptors back. Gathers that are under way end first; later ones raise."""
        super().close()
        self._table = None

    def _new_tensor(self, rows: int, dtype: torch.dtype) -> torch.Tensor:
        import torch

        nbytes = rows * self.row_bytes
        if self.row_bytes % 512 != 0 or self._entry.rows("ssd") == 0:
            return torch.empty((rows, self.dim), dtype=dtype)  # no read could land in it
        raw = torch.empty(nbytes + ALIGNMENT, dtype=torch.uint8)
        start = -raw.data_ptr() % ALIGNMENT
        return raw[start : start + nbytes].view(dtype).view(rows, self.dim)

    def _fill(self, ids: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
        table = self._table
        if table is None:
            raise self._closed_error()
        try:
            stats = table.gather(ids, out, self._threads)
        except TieringError:
            raise
        except MemoryError as error:
            raise self._no_room(len(ids)) from error
        except ValueError as error:
            raise InputError(f"{self._where}: node type {self.node_type!r}: {error}") from None
        except OSError as error:
            raise StorageError(error.errno, f"{error.strerror or error}") from error
        note_fallback(stats)
        self._refuse_damage(stats)
        self.counters.add(stats)

    def _refuse_damage(self, stats: native.GatherStats) -> None:
        """Raise if a gather met pages that are not what their checksums say."""


def as_ids(ids: Any) -> npt.NDArray[np.int64]:
    """Ranks as a contiguous int64 array; only the dtype and shape are checked here."""
    try:
        array = np.asarray(ids.detach().cpu().numpy() if hasattr(ids, "detach") else ids)
    except (TypeError, ValueError, RuntimeError) as error:  # bfloat16, sparse, quantised; lists of unequal lengths
        found = f"a {ids.dtype} tensor" if hasattr(ids, "dtype") else type(ids).__name__
        raise InputError(f"ids: expected int32 or int64 ranks of one dimension, found {found} ({error})") from None
    if array.ndim != 1:
        raise InputError(f"ids: expected one dimension, found shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype not in (np.int32, np.int64):
        raise InputError(f"ids: expected int32 or int64, found {array.dtype}")
    try:
        return np.ascontiguousarray(array, np.int64)
    except MemoryError:
        raise BudgetError(
            f"ids: no memory for {format_count(array.size)} of them as int64 ({format_bytes(8 * array.size)}); "
            "gather fewer at a time"
        ) from None


def dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements lie one after the other; sparse ones cannot even be asked."""
    import torch

    return tensor.layout == torch.strided and tensor.is_contiguous()
