"""Feature tables that are gathered by rank: spread over tiers, or all in memory, behind one interface."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import CapabilityError, FormatError, InputError, MissingError, StorageError, TieringError
from tiering.formats.layout import TIERS, Layout, TypeLayout, peer_rows
from tiering.formats.manifest import storage_dtype
from tiering.runtime.counters import Counters
from tiering.runtime.engines import DEFAULT_DEPTH, open_reader
from tiering.runtime.memory import ResidentRows, anonymous, load_rows
from tiering.units import format_bytes, format_count, parse_threads

if TYPE_CHECKING:
    import torch

ALIGNMENT = 4096
"""Outputs begin at a multiple of this, so that direct reads of whole sectors can land in them."""
_LOAD_BYTES = 64 * 1024 * 1024

log = logging.getLogger("tiering.runtime")
_told: set[str] = set()


class Gatherable(Protocol):
    """Anything a loader can take features from."""

    def gather(self, ids: Any, out: torch.Tensor | None = None) -> torch.Tensor:
        """Rows of `ids` in request order."""


class FeatureRows:
    """Rows of one node type that can be gathered by rank. Use as a context manager, or call `close`."""

    def __init__(self, where: str, entry: TypeLayout, table: native.TieredTable, threads: int) -> None:
        self._where = where
        self._entry = entry
        self._table: native.TieredTable | None = table
        self._threads = threads
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
        return self._table is None

    def __len__(self) -> int:
        return self._entry.num_nodes

    def gather(self, ids: Any, out: torch.Tensor | None = None, device: str | None = None) -> torch.Tensor:
        """Rows of `ids`, in request order, as a torch tensor.

        Parameters
        ----------
        ids
            Ranks: torch or NumPy, int32 or int64, shape (n,), each in 0..rows-1; may repeat.
        out
            Contiguous CPU tensor of shape (n, dim) and this table's dtype to fill; a new one otherwise.
        device
            Only ``cpu`` (the default) in this build.

        Raises
        ------
        InputError
            If an id is out of range (nothing is written then), or ids or `out` have the wrong shape or dtype.
        StorageError
            If the ssd tier cannot be read; `out` is then unspecified.

        Notes
        -----
        Reads of the ssd tier are submitted first; rows in memory are copied while they are in flight. Rows of one page,
        and rows that repeat, are read once per call. Safe to call from several threads; ssd reads take turns.
        """
        import torch

        if device is not None and torch.device(device).type != "cpu":
            raise CapabilityError(f"device={device!r}: this build has no GPU module; rows arrive in host memory")
        wanted = _as_ids(ids)
        dtype: torch.dtype = getattr(torch, self.dtype)
        if out is None:
            out = self._new_tensor(len(wanted), dtype)
        elif tuple(out.shape) != (len(wanted), self.dim) or out.dtype != dtype or not out.is_contiguous():
            raise InputError(
                f"out: expected a contiguous {dtype} tensor of shape ({len(wanted)}, {self.dim}), "
                f"found {out.dtype} {tuple(out.shape)}{'' if out.is_contiguous() else ', not contiguous'}"
            )
        elif out.device.type != "cpu":
            raise CapabilityError(f"out: expected a tensor in host memory, found one on {out.device}")
        self._fill(wanted, out.detach().view(torch.uint8).numpy())
        return out

    def gather_numpy(self, ids: Any, out: npt.NDArray[Any] | None = None) -> npt.NDArray[Any]:
        """Like `gather`, as a NumPy array; ``bfloat16`` comes as ``uint16``. Needs no torch."""
        wanted = _as_ids(ids)
        dtype, shape = storage_dtype(self.dtype), (len(wanted), self.dim)
        if out is None:
            nbytes = len(wanted) * self.row_bytes
            raw = np.empty(nbytes + ALIGNMENT, np.uint8)
            start = -raw.ctypes.data % ALIGNMENT
            out = raw[start : start + nbytes].view(dtype).reshape(shape)
        elif out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous or not out.flags.writeable:
            raise InputError(
                f"out: expected a writeable C-contiguous {dtype} array of shape {shape}, found {out.dtype} {out.shape}"
            )
        self._fill(wanted, out.view(np.uint8).reshape(len(wanted), self.row_bytes))
        return out

    def reset_counters(self) -> None:
        """Begin counting again at zero."""
        self.counters.reset()

    def close(self) -> None:
        """Give memory and descriptors back. Gathers that are under way end first; later ones raise."""
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
            raise InputError(f"{self._where}: node type {self.node_type!r}: the features were closed")
        try:
            stats = table.gather(ids, out, self._threads)
        except TieringError:
            raise
        except ValueError as error:
            raise InputError(f"{self._where}: node type {self.node_type!r}: {error}") from None
        except OSError as error:
            raise StorageError(error.errno, f"{error.strerror or error}") from error
        self.counters.add(stats)

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TieredFeatures(FeatureRows):
    """Feature rows of one node type over the four tiers of a layout.

    On a machine without a GPU, or in a build without the GPU module, the gpu and peer tiers live in host memory; a
    warning says so once.

    Parameters
    ----------
    layout
        The layout artifact.
    node_type
        A type with features.
    engine
        ``auto``, ``io_uring``, ``threads`` or ``mmap`` for the ssd tier.
    depth
        SSD reads in flight at most.
    direct
        ``auto``, ``on`` or ``off``: O_DIRECT reads.
    threads
        Threads that copy rows from memory.
    device
        Where the gpu tier lives; only ``cpu`` in this build.
    """

    def __init__(
        self,
        layout: Layout,
        node_type: str,
        *,
        engine: str = "auto",
        depth: int = DEFAULT_DEPTH,
        direct: str = "auto",
        threads: int | str | None = "auto",
        device: str = "cpu",
    ) -> None:
        if device != "cpu":
            raise CapabilityError(f"device={device!r}: this build has no GPU module; use device='cpu'")
        entry = layout.type_layout(node_type)
        self.reader = None
        """Open SSD images; ``None`` where the ssd tier is empty."""
        if entry.rows("ssd"):
            _check_images(layout, entry)
            self.reader = open_reader(layout.images, layout.page_bytes, engine, depth, direct)
        gpu, peers, cpu = _load_tiers(layout, entry)
        ssd = entry.ssd_rows
        table = native.TieredTable(
            entry.row_bytes,
            [entry.ranges[tier][1] for tier in TIERS],
            None if gpu is None else gpu.array,
            [peer.array for peer in peers],
            None if cpu is None else cpu.array,
            self.reader,
            ssd.first_page,
            ssd.stride,
            ssd.rows_per_page,
            layout.page_bytes,
        )
        super().__init__(str(layout.path), entry, table, parse_threads(threads))
        self._resident: list[ResidentRows] = [rows for rows in (gpu, *peers, cpu) if rows is not None]
        self._warn_host_tiers()

    @property
    def engine(self) -> str | None:
        """Engine that reads the ssd tier; ``None`` where that tier is empty."""
        return None if self.reader is None else self.reader.engine

    def placement(self) -> dict[str, dict[str, Any]]:
        """Per tier: ``ranks`` (half-open), ``rows``, ``bytes`` and ``where`` the rows really are."""
        return {
            tier: {
                "ranks": list(self._entry.ranges[tier]),
                "rows": self._entry.rows(tier),
                "bytes": self._entry.rows(tier) * self.row_bytes,
                "where": self._place(tier),
            }
            for tier in TIERS
        }

    def close(self) -> None:
        """Give memory and descriptors back; memory shared with another open table stays until that is closed."""
        super().close()
        self._resident = []
        self.reader = None

    def _place(self, tier: str) -> str:
        if not self._entry.rows(tier):
            return "empty"
        if tier == "ssd":
            if self.reader is None:
                return "closed"
            return f"{self.reader.engine}, {'direct' if self.reader.direct else 'buffered'} reads"
        return "host memory" if tier == "cpu" else "host memory (no GPU module in this build)"

    def _warn_host_tiers(self) -> None:
        rows = self._entry.rows("gpu") + self._entry.rows("peer")
        if not rows or self._where in _told:
            return
        _told.add(self._where)
        log.warning(
            "%s: the gpu and peer tiers live in host memory, because this build has no GPU module",
            self._where,
        )

    def __repr__(self) -> str:
        if self.closed:
            return f"<TieredFeatures {self.node_type!r} (closed)>"
        tiers = "; ".join(
            f"{tier} {format_count(place['rows'])} rows in {place['where']}"
            for tier, place in self.placement().items()
            if place["rows"]
        )
        return f"<TieredFeatures {self.node_type!r} {self.shape} {self.dtype}: {tiers or 'no rows'}>"


class MemoryFeatures(FeatureRows):
    """The same rows, all in host memory: the yardstick for the tiers, and what small graphs use.

    Parameters
    ----------
    node_type
        Name, for messages.
    table
        Shape (rows, dim), row = rank. C-contiguous tables are used as they are, others are copied.
    dtype
        Element type if the array's own does not say it (``bfloat16`` held as ``uint16``).
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
        entry = TypeLayout(node_type, rows, dim, dtype or table.dtype.name, ranges, _no_ssd_rows())
        flat = np.ascontiguousarray(table).reshape(-1).view(np.uint8)
        native_table = native.TieredTable(entry.row_bytes, [0, 0, rows, rows], None, [], flat, None)
        super().__init__("features in memory", entry, native_table, parse_threads(threads))

    @classmethod
    def load(cls, features: FeatureRows) -> MemoryFeatures:
        """Copy all rows of `features` into memory. Cost: every row is read once, in order, 64 MiB at a time."""
        rows, dim = features.shape
        dtype = storage_dtype(features.dtype)
        table = anonymous(rows * features.row_bytes).view(dtype).reshape(rows, dim)
        step = max(1, _LOAD_BYTES // features.row_bytes)
        for start in range(0, rows, step):
            ids = np.arange(start, min(rows, start + step), dtype=np.int64)
            features.gather_numpy(ids, out=table[start : start + len(ids)])
        return cls(features.node_type, table, features.dtype)

    def __repr__(self) -> str:
        return f"<MemoryFeatures {self.node_type!r} {self.shape} {self.dtype}>"


def _no_ssd_rows() -> Any:
    from tiering.formats.layout import SsdRows

    return SsdRows(0, 0, 1, 0)


def _as_ids(ids: Any) -> npt.NDArray[np.int64]:
    """Ranks as a contiguous int64 array; only the dtype and shape are checked here."""
    array = np.asarray(ids.detach().cpu().numpy() if hasattr(ids, "detach") else ids)
    if array.ndim != 1:
        raise InputError(f"ids: expected one dimension, found shape {array.shape}")
    if array.size == 0:
        return np.empty(0, np.int64)
    if array.dtype not in (np.int32, np.int64):
        raise InputError(f"ids: expected int32 or int64, found {array.dtype}")
    return np.ascontiguousarray(array, np.int64)


def _load_tiers(
    layout: Layout, entry: TypeLayout
) -> tuple[ResidentRows | None, list[ResidentRows], ResidentRows | None]:
    def load(tier: str, rows: int, peer: int = 0) -> ResidentRows | None:
        if rows == 0:
            return None
        return load_rows(layout.tier_path(entry.node_type, tier, peer), rows * entry.row_bytes)

    peers = []
    for peer in range(layout.num_peers if entry.rows("peer") else 0):
        rows = peer_rows(entry.rows("peer"), peer, layout.num_peers)
        empty = ResidentRows(layout.path, np.empty(0, np.uint8))
        peers.append(load("peer", rows, peer) or empty)
    return load("gpu", entry.rows("gpu")), peers, load("cpu", entry.rows("cpu"))


def _check_images(layout: Layout, entry: TypeLayout) -> None:
    """Existence and size again: images lie outside the layout and may have changed since it was opened."""
    from tiering.formats.layout import image_bytes

    last_page = entry.ssd_rows.first_page + entry.ssd_rows.num_pages
    for index, path in enumerate(layout.images):
        if not path.exists():
            raise MissingError(
                f"{path}: ssd image {index} of {layout.path} does not exist (moved? make the layout again)"
            )
        needed = image_bytes(last_page, index, layout.num_images, layout.page_bytes)
        if path.is_file() and path.stat().st_size < needed:
            raise FormatError(
                f"{path}: ssd image {index} of {layout.path} needs at least {needed} bytes, "
                f"found {path.stat().st_size}; make the layout again"
            )


def describe(features: FeatureRows) -> str:
    """One line per tier: ranks, rows, size and place."""
    if not isinstance(features, TieredFeatures):
        return repr(features)
    lines = []
    for tier, place in features.placement().items():
        begin, end = place["ranks"]
        lines.append(
            f"{tier:<5} ranks {begin}..{end} {format_count(place['rows']):>14} rows "
            f"{format_bytes(place['bytes']):>10}  {place['where']}"
        )
    return "\n".join(lines)
