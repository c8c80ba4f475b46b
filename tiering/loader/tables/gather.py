"""Tables whose rows arrive in host memory: of a layout's tiers, or of memory alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.errors import CapabilityError, FormatError, InputError, TieringError
from tiering.formats.layout import MEMORY_TIERS, Layout, SsdRows, TypeLayout
from tiering.loader.options import ReadOptions
from tiering.loader.process import require_torch, warn_once
from tiering.loader.tables.preload import preload_ssd_rows
from tiering.loader.tables.resident import SharedBlock, SharesMemory, anonymous, load_rows
from tiering.loader.tables.rows import FeatureRows, as_ids
from tiering.loader.tables.ssd import PageChecks, describe, make_table, open_images, warn_of_fallback
from tiering.units import parse_threads

if TYPE_CHECKING:
    import torch

_LOAD_BYTES = 64 * 1024 * 1024
_DEFAULT = ReadOptions()


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
    ) -> None:
        super().__init__(where, entry, reader)
        self._table: native.TieredTable | None = table
        self._threads, self._checks = parse_threads(threads), checks

    @property
    def table(self) -> native.TieredTable:
        """The core's table."""
        if self._table is None:
            raise self._closed_error()
        return self._table

    def gather(self, ids: Any, out: torch.Tensor | None = None, device: str | None = None) -> torch.Tensor:
        """Return the rows of `ids`, in request order, as a torch tensor.

        Parameters
        ----------
        ids
            Ranks: torch or NumPy, int32 or int64, shape (n,), each in 0..rows-1; may repeat.
        out
            Contiguous CPU tensor of shape (n, dim) and this table's dtype to fill; by default a new one.
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
        and repeated rows, are read once per call. Several threads may call it; ssd reads take turns. A forked child
        may go on with the table; a fork waits for reads that are under way.
        """
        require_torch()
        import torch

        if device is not None and torch.device(device).type != "cpu":
            raise CapabilityError(
                f"device={device!r}: this table's rows arrive in host memory; open it with features(device={device!r})"
            )
        if out is None:
            rows = self.gather_numpy(ids)
            return torch.from_numpy(rows.view(np.uint8)).view(getattr(torch, self.dtype))
        wanted = as_ids(ids)
        self._check_out(out, len(wanted), "; gather_numpy fills NumPy arrays")
        if out.device.type != "cpu":
            raise CapabilityError(f"out: expected a tensor in host memory, found one on {out.device}")
        self._fill(wanted, out.detach().view(torch.uint8).numpy())
        return out

    def gather_numpy(self, ids: Any, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Return the rows as of `gather` as a NumPy array; ``bfloat16`` as ``uint16``. Needs no torch."""
        wanted = as_ids(ids)
        dtype, shape = storage_dtype(self.dtype), (len(wanted), self.dim)
        if out is None:
            nbytes = len(wanted) * self.row_bytes
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
        self._fill(wanted, out.view(np.uint8).reshape(len(wanted), self.row_bytes))
        return out

    def close(self) -> None:
        """Free memory and descriptors. Gathers that are under way end first; later ones raise."""
        super().close()
        self._table = self._checks = None

    def _fill(self, ids: npt.NDArray[np.int64], out: npt.NDArray[np.uint8]) -> None:
        table, checks = self.table, self._checks
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
    """A table of the rows of one node type over the four tiers of a layout, opened by `TieredLayout.features`.

    The rows arrive in host memory, and the gpu and peer tiers live there too; a warning says so once. On a GPU:
    `tiering.loader.gpu.gather.GpuFeatures`.
    """

    def __init__(
        self,
        layout: Layout,
        node_type: str,
        reading: ReadOptions = _DEFAULT,
        preloaded: bool = False,
        group: SharesMemory | None = None,
    ) -> None:
        entry = layout.type_layout(node_type)
        self._reopened_by = (str(layout.path.absolute()), layout.digest, node_type, reading, preloaded)
        checks = PageChecks(layout) if reading.verify and entry.rows("ssd") else None
        if reading.verify:
            layout.verify_tiers(node_type)
        reader = open_images(layout, entry, reading)
        tiers = [
            load_rows(layout.tier_path(node_type, tier, peer), rows * entry.row_bytes, group) if rows else None
            for tier in MEMORY_TIERS
            for peer, rows in enumerate(entry.file_rows(tier, layout.num_peers))
        ]
        self._resident: list[SharedBlock] = [rows for rows in tiers if rows is not None]
        no_rows = np.empty(0, np.uint8)
        gpu, *shares, cpu = (no_rows if rows is None else rows.array for rows in tiers)
        self.preloaded = preloaded and reader is not None
        """Whether all rows of the ssd tier lie in memory."""
        ssd = None
        if self.preloaded:
            self._resident.append(preload_ssd_rows(layout, entry, reading, checks, group))
            ssd, reader = self._resident[-1].array, None
        table = make_table(layout, entry, reader, None if self.preloaded else checks, (gpu, shares, cpu), ssd)
        super().__init__(str(layout.path), entry, table, reading.threads, reader, checks)
        if entry.rows("gpu") + entry.rows("peer"):
            warn_once(
                f"{layout.path}: the gpu and peer tiers live in host memory, because they were opened with device='cpu'"
            )

    def close(self) -> None:
        """Free memory and descriptors; memory shared with another open table stays until that is closed."""
        super().close()
        self._resident = []

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


def _reopen(path: str, digest: str, node_type: str, reading: ReadOptions, preloaded: bool) -> TieredFeatures:
    return TieredFeatures(same_layout(path, digest), node_type, reading, preloaded)


def same_layout(path: str, digest: str) -> Layout:
    """Open the layout at `path`; `FormatError` if its manifest lacks `digest`, as of a pickled layout."""
    layout = Layout.open(path)
    if layout.digest != digest:
        raise FormatError(
            f"{path}: the layout was replaced after it was pickled: expected digest {digest}, found {layout.digest}; "
            "open it anew"
        )
    return layout


class MemoryFeatures(HostRows):
    """A table of rows that all lie in host memory, for small graphs and comparisons.

    Parameters
    ----------
    node_type
        Name, for messages.
    table
        Shape (rows, dim), row = rank. C-contiguous tables are used as they are, others are copied.
    dtype
        Element type if the array's own does not say it (``bfloat16`` as ``uint16``).
    """

    def __init__(
        self,
        node_type: str,
        table: npt.NDArray[Any],
        dtype: str | None = None,
        threads: int | str | None = "auto",
    ) -> None:
        if table.ndim != 2:
            raise InputError(f"{node_type}: expected a table of shape (rows, dim), found {table.shape}")
        rows, dim = table.shape
        none = (0, 0)
        ranges = {"gpu": none, "peer": none, "cpu": (0, rows), "ssd": (rows, rows)}
        entry = TypeLayout(node_type, rows, dim, dtype or table.dtype.name, ranges, SsdRows(0, 0, 1, 0))
        flat = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
        native_table = native.TieredTable(entry.row_bytes, [0, 0, rows, rows], None, [], flat, None)
        super().__init__("features in memory", entry, native_table, threads)

    @classmethod
    def load(cls, features: HostRows) -> MemoryFeatures:
        """Copy all rows of `features` into memory. Cost: each row is read once, in order, 64 MiB at a time."""
        rows, dim = features.shape
        table = anonymous(rows * features.row_bytes).view(storage_dtype(features.dtype)).reshape(rows, dim)
        step = max(1, _LOAD_BYTES // features.row_bytes)
        for start in range(0, rows, step):
            ids = np.arange(start, min(rows, start + step), dtype=np.int64)
            features.gather_numpy(ids, out=table[start : start + len(ids)])
        return cls(features.node_type, table, features.dtype)

    def __repr__(self) -> str:
        return f"<MemoryFeatures {self.node_type!r} {self.shape} {self.dtype}>"
