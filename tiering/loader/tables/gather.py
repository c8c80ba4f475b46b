"""Feature rows gathered by rank: the base of all tables, and those whose rows arrive in host memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.errors import BudgetError, CapabilityError, FormatError, InputError, TieringError
from tiering.formats.arrow import as_array
from tiering.formats.layout import MEMORY_TIERS, TIERS, Layout, TypeLayout
from tiering.layout.cut import cut_layout
from tiering.loader.options import ReadOptions
from tiering.loader.process import require_torch, warn_once
from tiering.loader.stats import Counters
from tiering.loader.tables.delivery import Delivery
from tiering.loader.tables.indexing import ClosableRows
from tiering.loader.tables.ranks import TierPart
from tiering.loader.tables.resident import SharedBlock
from tiering.loader.tables.ssd import PageChecks, describe, make_table, open_images, preload_ssd_rows, warn_of_fallback
from tiering.text.units import format_bytes, format_count, parse_threads

if TYPE_CHECKING:
    import torch

    from tiering.loader.processes.peers import PeerGroup

_DEFAULT = ReadOptions()


class FeatureRows(ClosableRows):
    """A table of rows of one node type, gathered by rank. Use it as a context manager, or call `close`."""

    def __init__(
        self, where: str, entry: TypeLayout, reader: native.SsdReader | None = None, delivery: Delivery | None = None
    ) -> None:
        delivery = delivery or Delivery.plain(entry)
        self._where, self._entry, self.closed = where, entry, False
        self._what = f"{where}: {entry.label}"
        self.reader = reader
        """Open SSD images; ``None`` where the ssd tier is empty."""
        self._counters = Counters()
        self.node_type = entry.node_type
        """Node type of the rows; of rows of edges, the key of their relation."""
        self.dtype = delivery.dtype
        """Dtype of delivered rows: a NumPy name or ``bfloat16``."""
        self.shape = entry.num_nodes, entry.dim
        """(rows, elements per row)."""
        self.dim = entry.dim
        """Elements per row."""
        self.row_bytes = entry.row_bytes
        """Bytes of a row as it is stored."""
        self.out_bytes = delivery.out_bytes
        """Bytes of a row as it is delivered."""

    @property
    def counters(self) -> Counters:
        """Rows and bytes that each tier served since open or `reset_counters`."""
        return self._counters

    @property
    def engine(self) -> str | None:
        """Engine that reads the ssd tier; ``None`` where that tier is empty."""
        return None if self.reader is None else self.reader.engine

    def placement(self) -> dict[str, dict[str, Any]]:
        """Return ``ranks`` (half-open), ``rows``, ``bytes`` and ``where`` (where the rows really are) of each tier."""
        where = {tier: self._place(tier) if self._entry.rows(tier) else "empty" for tier in TIERS}
        return {tier: {**self._entry.tier_summary(tier), "where": place} for tier, place in where.items()}

    def reset_counters(self) -> None:
        """Begin counting again at zero."""
        self.counters.reset()

    def close(self) -> None:
        """Free memory and descriptors. Gathers that are under way end first; later ones raise."""
        self.closed, self.reader = True, None

    def _place(self, tier: str) -> str:
        """Return where the rows of a tier are, which is not empty, for people."""
        return "host memory"

    def __reduce__(self) -> tuple[Any, ...]:
        raise CapabilityError(
            f"{self._what}: {type(self).__name__} belong to the memory of one process and cannot be pickled; pickle "
            "the layout, and open the features in the other process"
        )

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.closed:
            return f"<{name} {self.node_type!r} (closed)>"
        places = [(tier, place["where"], place["rows"]) for tier, place in self.placement().items() if place["rows"]]
        tiers = "; ".join(f"{tier} {format_count(rows)} rows in {where}" for tier, where, rows in places)
        kept = self._entry.codec or self._entry.dtype
        stored = "" if kept == self.dtype else f", stored as {kept}"
        return f"<{name} {self.node_type!r} {self.shape} {self.dtype}{stored}: {tiers or 'no rows'}>"

    def _closed_error(self) -> InputError:
        return InputError(f"{self._what}: the features were closed")

    def _no_room(self, rows: int) -> BudgetError:
        return BudgetError(
            f"{self._what}: no memory to gather {format_count(rows)} rows ({format_bytes(rows * self.out_bytes)}); "
            "gather fewer ids at a time"
        )


class HostRows(FeatureRows):
    """A table whose rows arrive in host memory; `checks` refuse damaged pages of the ssd tier."""

    def __init__(
        self,
        where: str,
        entry: TypeLayout,
        table: native.TieredTable,
        threads: int | str | None,
        reader: native.SsdReader | None = None,
        checks: PageChecks | None = None,
        delivery: Delivery | None = None,
        stored: Callable[[], native.TieredTable] | None = None,
    ) -> None:
        super().__init__(where, entry, reader, delivery)
        self._table: native.TieredTable | None = table
        self._stored = stored or (lambda: self.table)  # makes a table of the same rows that decodes none
        self._threads, self._checks = parse_threads(threads), checks

    @property
    def table(self) -> native.TieredTable:
        """The core's table of the rows."""
        if self._table is None:
            raise self._closed_error()
        return self._table

    def gather(self, ids: Any, out: torch.Tensor | None = None, *, decoded: bool = True) -> torch.Tensor:
        """Return the rows of `ids`, in request order, as a torch tensor.

        Parameters
        ----------
        ids
            Ranks: torch or NumPy, int32 or int64, shape (n,), each in 0..rows-1; may repeat.
        out
            Contiguous CPU tensor of shape (n, dim) and this table's dtype to fill; by default a new one.
        decoded
            ``False``: rows as they are stored, uint8, shape (n, `row_bytes`).

        Raises
        ------
        InputError, BudgetError
            If an id is out of range, ids or `out` have the wrong shape or dtype, or there is no memory for so many
            rows; nothing is written then.
        StorageError, FormatError
            If the ssd tier cannot be read, or with ``verify=True`` a page is damaged; `out` is then unspecified.

        Notes
        -----
        Rows of one page, and repeated rows, are read once per call, while rows in memory are copied. Several threads
        may call it; ssd reads take turns. A forked child may use the table.
        """
        require_torch()
        import torch

        dtype: torch.dtype = getattr(torch, self.dtype) if decoded else torch.uint8
        if out is None and decoded:
            return torch.from_numpy(self.gather_numpy(ids).view(np.uint8)).view(dtype)
        wanted = as_ids(ids)
        shape = (len(wanted), self.dim if decoded else self.row_bytes)
        out = torch.empty(shape, dtype=dtype) if out is None else out
        check_out(out, shape, dtype, torch.device("cpu"))
        self._fill(wanted, out.detach().view(torch.uint8).numpy(), self.table if decoded else self._stored())
        return out

    def gather_numpy(self, ids: Any, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the rows of `gather` as a NumPy array; ``bfloat16`` as ``uint16``. Needs no torch."""
        wanted = as_ids(ids)
        dtype, shape = storage_dtype(self.dtype), (len(wanted), self.dim)
        if out is None:
            nbytes = len(wanted) * self.out_bytes
            try:
                raw = np.empty(nbytes + native.ALIGNMENT, np.uint8)
            except MemoryError as error:
                raise self._no_room(len(wanted)) from error
            start = -raw.ctypes.data % native.ALIGNMENT
            out = raw[start : start + nbytes].view(dtype).reshape(shape)
        elif not isinstance(out, np.ndarray):
            raise InputError(f"out: expected a NumPy array, found {type(out).__name__}; gather fills tensors")
        elif out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
            raise InputError(
                f"out: expected a writeable C-contiguous {dtype} array of shape {shape}, found {out.dtype} {out.shape}"
            )
        self._fill(wanted, out.view(np.uint8).reshape(len(wanted), self.out_bytes), self.table)
        return out

    def close(self) -> None:
        """Free memory and descriptors. Gathers that are under way end first; later ones raise."""
        super().close()
        self._table = self._checks = None

    def _fill(self, ids: npt.NDArray[np.int64], out: npt.NDArray[np.uint8], table: native.TieredTable) -> None:
        checks = self._checks
        try:
            stats = table.gather(ids, out, self._threads)
        except TieringError:
            raise
        except MemoryError as error:
            raise self._no_room(len(ids)) from error
        except ValueError as error:
            raise InputError(f"{self._what}: {error}") from None
        warn_of_fallback(stats)
        if checks is not None:
            checks.refuse(stats.bad_page, self.node_type)
        self.counters.add(stats)


class TieredFeatures(HostRows):
    """A table of one node type over the four tiers of a layout, in host memory; `TieredLayout.features` opens it."""

    def __init__(
        self,
        layout: Layout,
        node_type: str,
        reading: ReadOptions = _DEFAULT,
        preloaded: bool = False,
        group: PeerGroup | None = None,
    ) -> None:
        entry = layout.type_layout(node_type)
        self._reopened_by = (str(layout.path.absolute()), layout.digest, layout.sizes, node_type, reading, preloaded)
        delivery = Delivery.of(layout, entry, reading.dtype)
        checks = PageChecks(layout) if reading.verify and entry.rows("ssd") else None
        if reading.verify:
            layout.verify_tiers(node_type)
        reader = open_images(layout, entry, reading)
        tiers = [
            TierPart(layout, entry, tier, reading, share).load(group) if rows else None
            for tier in MEMORY_TIERS
            for share, rows in enumerate(entry.file_rows(tier, layout.num_peers))
        ]
        self._resident: list[SharedBlock] = [rows for rows in tiers if rows is not None]
        no_rows = np.empty(0, np.uint8)
        gpu, *shares, cpu = (no_rows if rows is None else rows.array for rows in tiers)
        self.preloaded = preloaded and reader is not None
        """Whether all rows of the ssd tier lie in memory."""
        ssd = None
        if self.preloaded and reader is not None:
            self._resident.append(preload_ssd_rows(layout, entry, reader, reading, checks, group))
            ssd, reader = self._resident[-1].array, None
        parts = layout, entry, reader, None if self.preloaded else checks, (gpu, shares, cpu), ssd
        table, stored = make_table(*parts, delivery.rows), partial(make_table, *parts)
        super().__init__(str(layout.path), entry, table, reading.threads, reader, checks, delivery, stored)
        if entry.rows("gpu") + entry.rows("peer"):
            warn_once(
                f"{layout.path}: the gpu and peer tiers are in host memory, because it was opened with device='cpu'"
            )

    def close(self) -> None:
        """Free memory and descriptors; memory shared with another open table stays until that is closed."""
        super().close()
        self._resident, self._stored = [], lambda: self.table

    def __reduce__(self) -> tuple[Any, ...]:
        if self.closed:
            raise self._closed_error()
        return _reopen, self._reopened_by

    def _place(self, tier: str) -> str:
        if tier == "ssd" and self.preloaded:
            return "host memory (read from SSD)"
        if tier == "ssd":
            return describe(self.reader)
        return "host memory" if tier == "cpu" else "host memory (opened with device='cpu')"


def _reopen(path: str, digest: str, sizes: tuple[Any, ...], *about: Any) -> TieredFeatures:
    return TieredFeatures(cut_layout(same_layout(path, digest), *sizes), *about)


def same_layout(path: str, digest: str) -> Layout:
    """Open the layout at `path`; `FormatError` if its digest is not `digest`, which a pickled layout has."""
    layout = Layout.open(path, outside=False)
    if layout.digest != digest:
        raise FormatError(
            f"{path}: the layout was replaced after it was pickled: expected digest {digest}, found "
            f"{layout.digest}; open it again"
        )
    return layout


def check_out(out: Any, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
    """Raise `InputError` unless `out` is a contiguous tensor of this shape and type on this device."""
    import torch

    if not isinstance(out, torch.Tensor):
        raise InputError(f"out: expected a tensor, found {type(out).__name__}")
    # Whether elements of a sparse tensor lie one after the other cannot even be asked.
    dense = out.layout == torch.strided and out.is_contiguous()
    if tuple(out.shape) != shape or out.dtype != dtype or not dense or out.device != device:
        raise InputError(
            f"out: expected a contiguous {dtype} tensor of shape {shape} on {device}, found {out.dtype} "
            f"{tuple(out.shape)} on {out.device}{'' if dense else ', not contiguous'}"
        )


def as_ids(ids: Any) -> npt.NDArray[np.int64]:
    """Return ranks as a contiguous int64 array; only dtype and shape are checked."""
    array = as_array(ids, "ids")
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
