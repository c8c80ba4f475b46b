"""Rows gathered by rank: the base of all feature tables."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import BudgetError, CapabilityError, InputError
from tiering.formats.layout import TIERS, TypeLayout
from tiering.loader.tables.counters import Counters
from tiering.units import format_bytes, format_count

if TYPE_CHECKING:
    import torch


class FeatureRows:
    """A table of rows of one node type, gathered by rank. Use it as a context manager, or call `close`."""

    def __init__(self, where: str, entry: TypeLayout, reader: native.SsdReader | None = None) -> None:
        self._where, self._entry, self._closed = where, entry, False
        self._what = f"{where}: {entry.label}"
        self.reader = reader
        """Open SSD images; ``None`` where the ssd tier is empty."""
        self._counters = Counters()

    @property
    def counters(self) -> Counters:
        """Rows and bytes that each tier served since open or `reset_counters`."""
        return self._counters

    @property
    def node_type(self) -> str:
        """Node type of the rows; of rows of edges the key of their relation."""
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
    def engine(self) -> str | None:
        """Engine that reads the ssd tier; ``None`` where that tier is empty."""
        return None if self.reader is None else self.reader.engine

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def __len__(self) -> int:
        return self._entry.num_nodes

    def placement(self) -> dict[str, dict[str, Any]]:
        """Return ``ranks`` (half-open), ``rows``, ``bytes`` and ``where`` (where the rows really are) of each tier."""
        return {
            tier: {
                **self._entry.tier_summary(tier),
                "where": self._place(tier) if self._entry.rows(tier) else "empty",
            }
            for tier in TIERS
        }

    def reset_counters(self) -> None:
        """Begin counting again at zero."""
        self.counters.reset()

    def gather(self, ids: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        """Return the rows of `ids`, in request order."""
        raise NotImplementedError

    def __getitem__(self, ids: Any) -> torch.Tensor:
        """Return ``rows.gather(ids)``."""
        return self.gather(ids)

    __iter__ = None  # it would gather row by row

    def close(self) -> None:
        """Free memory and descriptors. Gathers that are under way end first; later ones raise."""
        self._closed, self.reader = True, None

    def _check_out(self, out: Any, rows: int, hint: str = "") -> None:
        """Raise `InputError` unless `out` is a tensor for `rows` rows."""
        import torch

        dtype: torch.dtype = getattr(torch, self.dtype)
        if not isinstance(out, torch.Tensor):
            raise InputError(f"out: expected a tensor, found {type(out).__name__}{hint}")
        # Whether elements of a sparse tensor lie one after the other cannot even be asked.
        dense = out.layout == torch.strided and out.is_contiguous()
        if tuple(out.shape) != (rows, self.dim) or out.dtype != dtype or not dense:
            raise InputError(
                f"out: expected a contiguous {dtype} tensor of shape ({rows}, {self.dim}), "
                f"found {out.dtype} {tuple(out.shape)}{'' if dense else ', not contiguous'}"
            )

    def _place(self, tier: str) -> str:
        """Return where the rows of a tier are, which is not empty, for people."""
        return "host memory"

    def __reduce__(self) -> tuple[Any, ...]:
        raise CapabilityError(
            f"{self._what}: {type(self).__name__} lie in the memory of one process and cannot be pickled; pickle the "
            "layout, and open the features in the other process"
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
        return InputError(f"{self._what}: the features were closed")

    def _no_room(self, rows: int) -> BudgetError:
        return BudgetError(
            f"{self._what}: no memory to gather {format_count(rows)} rows ({format_bytes(rows * self.row_bytes)}); "
            "gather fewer ids at a time"
        )

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def as_ids(ids: Any) -> npt.NDArray[np.int64]:
    """Return ranks as a contiguous int64 array; only dtype and shape are checked."""
    try:
        array = np.asarray(ids.detach().cpu().numpy() if hasattr(ids, "detach") else ids)
    except (TypeError, ValueError, RuntimeError) as error:  # bfloat16, sparse, quantised; lists of unequal lengths
        given = f"a {ids.dtype} tensor" if hasattr(ids, "dtype") else type(ids).__name__
        raise InputError(f"ids: expected int32 or int64 ranks of one dimension, found {given} ({error})") from None
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
