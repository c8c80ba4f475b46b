"""The tiered tensor: a tensor whose hottest rows are copied to faster memory (Min et al., KDD'22), without files."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np

from tiering import cuda, native
from tiering.errors import BudgetError, CapabilityError, InputError
from tiering.loader.gpu import device as gpu_device
from tiering.loader.gpu.device import Device, parse_sms
from tiering.loader.gpu.memory import MemoryTiers, load_codec
from tiering.loader.gpu.rows import STAGING_BYTES, GpuRows, StagedRows
from tiering.loader.process import require_torch, warn_once
from tiering.loader.stats import Counters
from tiering.loader.tables.gather import HostRows, as_ids, check_out
from tiering.loader.tables.indexing import ClosableRows
from tiering.loader.tables.resident import SharedBlock
from tiering.loader.tiered_tensor.source import (
    WHAT,
    Ids,
    SourceTensor,
    TensorPlacement,
    count_rows,
    parse_order,
    place_rows,
)
from tiering.text.units import format_bytes, parse_device, parse_threads

if TYPE_CHECKING:
    import torch

_ADVICE = "give a smaller `gpu`, or end other programs on this GPU"
_locked: WeakValueDictionary[tuple[int, int], SharedBlock] = WeakValueDictionary()
"""Tensors that are pinned, by address and bytes: memory can be pinned once, however many read it."""
_locking = threading.Lock()


class HostTensorRows(HostRows):
    """Rows of a tensor by position: copies, if the tensor is mapped from a disk, and the tensor itself."""

    def __init__(self, placement: TensorPlacement, threads: int) -> None:
        source, entry = placement.source, placement.entry()
        copies = source.copy_rows(placement.rows["cpu"], threads, 8 * source.num_rows * placement.needs_table)
        cpu, ssd = (copies, placement.rest) if source.file is not None else (placement.rest, None)
        ends = [end for _, end in entry.ranges.values()]
        codec = source.delivery.rows
        table = native.TieredTable(source.row_bytes, ends, None, [], cpu, None, ssd=ssd, codec=codec)
        super().__init__(WHAT, entry, table, threads, delivery=source.delivery)
        self._what, self._file = WHAT, source.file

    def ids_on_device(self, ids: Any) -> torch.Tensor:
        """Return ids in host memory: int64, shape (n,)."""
        import torch

        return torch.from_numpy(as_ids(ids).copy())  # what is checked is what is used, whatever others write to `ids`

    def take(self, positions: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return the rows at `positions`; as bytes where no codec decodes them."""
        return self.gather(positions, out)

    def _place(self, tier: str) -> str:
        return f"{self._file} (mapped)" if tier == "ssd" and self._file is not None else "host memory"


class GpuTensorRows(GpuRows):
    """Rows of a tensor by position, gathered by a GPU."""

    def __init__(self, placement: TensorPlacement, device: Device, max_sms: int | str, threads: int) -> None:
        sms, source = parse_sms(max_sms), placement.source
        super().__init__(WHAT, load_tensor_tiers(placement, device, threads), sms, delivery=source.delivery)
        self._placement, self._source, self._threads = placement, source, threads

    def take(self, positions: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return the rows at `positions` as `HostTensorRows` does; positions of no tier are passed over."""
        self.device.keep([positions])
        return self.gather(positions, out=out, checked=False)

    def _make_staging(self) -> StagedRows | None:
        if not self._entry.rows("ssd"):
            return None
        table, what = self._source.table(self._placement.rest), f"{WHAT}: buffers for rows of the file"
        return StagedRows(table, self.row_bytes, self.device, self._threads, STAGING_BYTES, what)

    def _place(self, tier: str) -> str:
        if tier == "ssd" and self._source.file is not None and not self.closed:
            return f"{self._source.file} (mapped)"
        return super()._place(tier)


def load_tensor_tiers(placement: TensorPlacement, device: Device, threads: int) -> MemoryTiers:
    """Copy the hottest rows to memory of the GPU and pinned host memory; a tensor in memory is pinned where it lies."""
    tiers, source = MemoryTiers(WHAT, placement.entry(), device), placement.source
    load_codec(tiers, source.delivery)
    if placement.rows["gpu"].size:
        memory = _copy_to_gpu(source, placement.rows["gpu"], device, threads)
        tiers.owners.append(memory)
        tiers.gpu = memory.address
    if tiers.entry.rows("cpu"):
        if source.file is not None:
            block, what = SharedBlock(WHAT, source.copy_rows(placement.rows["cpu"], threads)), "copies of rows"
        else:
            block, what = _tensor_block(placement), "page-locking the rows that are not copied"
        tiers.cpu = tiers.pin(block, what)
    return tiers


def _copy_to_gpu(source: SourceTensor, ids: Ids, device: Device, threads: int) -> cuda.DeviceMemory:
    nbytes, what = ids.size * source.row_bytes, f"{WHAT}: gpu"
    with cuda.device_errors(what, _ADVICE):
        memory, stream = cuda.allocate(device.index, nbytes), cuda.Stream(device.index)
    table = source.table(source.data)
    staged = StagedRows(table, source.row_bytes, device, threads, min(STAGING_BYTES, nbytes), what)
    with cuda.device_errors(what):
        staged.copy(ids, 0, memory.address, stream.handle, max_sms=0)
        stream.synchronize()
    return memory


def _tensor_block(placement: TensorPlacement) -> SharedBlock:
    """Return the memory of the rows that are not copied, as a block that can be pinned, or is by torch."""
    data, owner = placement.rest, placement.source.owner
    if not isinstance(owner, np.ndarray) and owner.is_pinned():
        block = SharedBlock(WHAT, data)
        block.registration = SimpleNamespace(address=int(data.ctypes.data))
        return block
    with _locking:
        block_or_none = _locked.get((data.ctypes.data, data.nbytes))
        block = SharedBlock(WHAT, data) if block_or_none is None else block_or_none
        _locked[data.ctypes.data, data.nbytes] = block
    return block


def upload_table(placement: TensorPlacement, device: Device) -> torch.Tensor:
    """Copy the table of positions to the GPU; `BudgetError` if its memory does not hold the table."""
    table = placement.table()
    try:
        return device.upload(table)
    except RuntimeError as error:  # torch's class for too little memory
        what = f"no memory of the GPU for the table of positions ({format_bytes(table.nbytes)})"
        raise BudgetError(f"{WHAT}: {what}: {error}; {_ADVICE}") from error


class TieredTensor(ClosableRows):
    """Rows of a tensor over several memories; `tiering.tiered` makes it. ``t[index]`` is ``tensor[index]`` on `device`.

    Use as a context manager, or call `close`; safe from several threads. Forked workers gather from the memory of their
    parent, if rows lie in host memory. Pickling raises `CapabilityError`: make the tiered tensor in the other process.
    """

    def __init__(
        self,
        placement: TensorPlacement,
        rows: HostTensorRows | GpuTensorRows,
        table: torch.Tensor | None,
        device: torch.device,
    ) -> None:
        import torch

        self._placement, self._source = placement, placement.source
        self._rows: HostTensorRows | GpuTensorRows | None = rows
        self._what, self._table = WHAT, table  # position of each row; none: its number
        self.shape = torch.Size(self._source.shape)
        self.dtype: torch.dtype = self._source.dtype
        self.device: torch.device = device
        self.codec = self._source.codec
        """The codec of the stored rows; ``None``: rows are as in the tensor."""
        self.loss = self._source.loss
        """The loss of the codec (`tiering.codecs`); ``None``: rows are as in the tensor."""

    def gather(self, ids: Any, out: torch.Tensor | None = None, *, checked: bool = True) -> torch.Tensor:
        """Return the rows of `ids`, in request order: ``tensor[ids]``, on `device`.

        Parameters
        ----------
        ids
            Row numbers of the tensor: torch or NumPy, int32 or int64, shape (n,), in host memory or on the GPU.
        out
            Contiguous tensor on `device`, of shape (n, ...) and the tensor's dtype, to fill; by default a new one.
        checked
            On a GPU: whether to wait for the ids and raise if one is out of range. ``False``: `out` keeps its rows for
            such ids.

        Raises
        ------
        InputError, BudgetError
            If an id is out of range (nothing is written then), ids or `out` have the wrong shape or dtype, or the
            tiered tensor was closed; there is no memory for so many rows.
        """
        import torch

        rows = self._open()
        self._source.require_unmoved()
        wanted = rows.ids_on_device(ids)
        if out is not None:
            check_out(out, (len(wanted), *self.shape[1:]), self.dtype, self.device)
        positions = self._find_positions(wanted, checked or isinstance(rows, HostTensorRows))
        if out is not None:
            rows.take(positions, out.detach().view(-1).view(getattr(torch, rows.dtype)).view(len(out), rows.dim))
            return out
        return rows.take(positions, None).view(self.dtype).view(len(wanted), *self.shape[1:])

    @property
    def counters(self) -> Counters:
        """Rows that each tier served; see `placement`."""
        return self._open().counters

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._rows is None

    def placement(self) -> dict[str, dict[str, Any]]:
        """Return ``rows``, ``bytes`` and ``where`` they are by tier; ``ssd`` has the rows read from a mapped file."""
        copies, places = self._placement.rows, self._open().placement()
        counts = {"gpu": copies["gpu"].size, "cpu": copies["cpu"].size, "ssd": 0}
        counts["ssd" if self._source.file is not None else "cpu"] += len(self) - self._placement.copied
        nbytes = self._source.row_bytes
        return {t: {"rows": n, "bytes": n * nbytes, "where": places[t]["where"]} for t, n in counts.items()}

    def close(self) -> None:
        """Release copies and pinned memory, after gathers that are under way; the tensor itself stays."""
        if self._rows is not None:
            self._rows.close()
            self._rows = self._table = None

    def _open(self) -> HostTensorRows | GpuTensorRows:
        if self._rows is None:
            raise InputError(f"{WHAT}: it was closed; make it again with tiering.tiered")
        return self._rows

    def _find_positions(self, ids: torch.Tensor, checked: bool) -> torch.Tensor:
        """Return the positions of rows; -1, which no tier has, for ids out of range."""
        import torch

        wrong = (ids < 0) | (ids >= len(self))
        if checked and bool(wrong.any()):
            at = int(wrong.nonzero()[0])
            raise InputError(f"{WHAT}: ids[{at}] is {int(ids[at])}, outside 0..{len(self) - 1}")
        if self._table is None:
            return ids
        if checked:
            return self._table[ids].to(torch.int64)
        return torch.where(wrong, -1, self._table[ids.clamp(0, len(self) - 1)].to(torch.int64))

    def __reduce__(self) -> tuple[Any, ...]:
        raise CapabilityError(
            f"{WHAT}: it belongs to the memory of one process and cannot be pickled or sent to a spawned one; make "
            "it in each process from the tensor or memmap, or, with rows in host memory, fork the workers "
            "(multiprocessing_context='fork')"
        )

    def __repr__(self) -> str:
        stored = "" if self.codec is None else f", stored as {self.codec.name} ({self.loss})"
        kind = f"TieredTensor {tuple(self.shape)} {self.dtype} on {self.device}{stored}"
        if self.closed:
            return f"<{kind} (closed)>"
        tiers = [f"{place['rows']:,} rows in {place['where']}" for place in self.placement().values() if place["rows"]]
        return f"<{kind}: {'; '.join(tiers) or 'no rows'}>"


def tiered(
    tensor: Any,
    *,
    gpu: str | int = 0,
    cpu: str | int = "auto",
    order: Any = None,
    dtype: Any = None,
    device: Any = None,
    max_sms: int | str = "auto",
    threads: int | str | None = "auto",
) -> TieredTensor:
    """Make a tiered tensor: the hottest rows of a tensor copied to faster memory, the others read where they are.

    Parameters
    ----------
    tensor
        Torch tensor in host memory, NumPy array or memmap; contiguous, shape (rows, ...), any dtype of torch. Its rows
        are read in place: it is not to be written to while the tiered tensor is open.
    gpu
        Memory of the GPU for the hottest rows: ``2GiB``, or a share of the tensor, ``25%``.
    cpu
        Host memory for copies of the next rows of a tensor that is mapped from a file on disk; ``auto``: most of what
        is free. Not used for a tensor that lies in memory already.
    order
        Scores: higher is hotter, ties by row number; any real numbers, shape (rows,), or a
        `tiering.formats.scores.Scores` artifact of one node type. ``None``: the first rows are the hottest.
    dtype
        How rows are stored: ``int8``, ``float8_e4m3``, ``bfloat16``, ``float16``, ``float32``; ``auto``: ``float16``
        where it changes no number, else as they are. All rows are encoded into host memory then, and decoded to the
        tensor's dtype as they are gathered (``float32`` unless it is one of 16 bits), and the tensor is not needed any
        more. ``None``: rows are not encoded.
    device
        ``cpu``, ``cuda``, ``cuda:1``, a ``torch.device``: where rows arrive. ``None``: ``cuda`` where torch and this
        package can use a GPU, else ``cpu``.
    max_sms
        Multiprocessors that a gather may use; 0: all, ``auto``: a tenth.
    threads
        Threads that copy rows in host memory.

    Raises
    ------
    InputError, BudgetError, CapabilityError
        If the tensor is not dense, contiguous and in host memory, or scores or sizes do not fit it; it has a number
        that `dtype` cannot store, by row and column; memory of the GPU, or host memory to copy to or to lock, does not
        suffice (nothing stays taken); the device cannot be used.

    Notes
    -----
    On a GPU what is not copied is page-locked where it lies and read by zero copy; of a tensor mapped from a file, the
    `cpu` rows are copied to page-locked memory, and the host reads the rest through two pinned buffers.

    Memory: copied and encoded rows, and with `order` a table of positions on the device that gathers, 4 bytes for each
    row of the tensor (8 from 2^31 on). Ranking takes 24 bytes a row.
    """
    require_torch()
    import torch

    source, workers = SourceTensor.of(tensor), parse_threads(threads)
    if dtype is not None:
        source = source.encode(str(getattr(dtype, "__name__", dtype)).removeprefix("torch."), workers)
    scores, gpu_rows = parse_order(order, source.num_rows), count_rows(gpu, "gpu", source)
    if device is None:
        device = "cuda" if torch.cuda.is_available() and not cuda.unavailable() else "cpu"
    index, cpu_rows = parse_device(device), count_rows(cpu, "cpu", source) if source.file is not None else 0
    if index is None:
        if gpu_rows:
            warn_once("tiered: gpu is not used with device='cpu'")
        placement = place_rows(source, 0, cpu_rows, scores, workers)
        on_host = HostTensorRows(placement, workers)
        table = torch.from_numpy(placement.table()) if placement.needs_table else None
        return TieredTensor(placement, on_host, table, torch.device("cpu"))
    where = gpu_device.open_device(index)
    placement = place_rows(source, gpu_rows, cpu_rows, scores, workers)
    on_gpu = GpuTensorRows(placement, where, max_sms, workers)
    with cuda.device_errors(WHAT):
        table = upload_table(placement, where) if placement.needs_table else None
    return TieredTensor(placement, on_gpu, table, where.torch_device)
