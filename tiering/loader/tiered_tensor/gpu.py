"""A tiered tensor whose rows arrive on a GPU: copies in its memory, the rest in pinned host memory."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

import numpy as np

from tiering import cuda
from tiering.errors import BudgetError
from tiering.loader.gpu.device import Device, parse_sms
from tiering.loader.gpu.rows import STAGING_BYTES, GpuRows, StagedRows
from tiering.loader.gpu.tiers import MemoryTiers
from tiering.loader.tables.resident import SharedBlock
from tiering.loader.tiered_tensor.source import WHAT, Ids, SourceTensor, TensorPlacement
from tiering.text.units import format_bytes

if TYPE_CHECKING:
    import torch

_ADVICE = "give a smaller `gpu`, or end other programs on this GPU"
_locked: WeakValueDictionary[tuple[int, int], SharedBlock] = WeakValueDictionary()
"""Tensors that are pinned, by address and bytes: memory can be pinned once, however many read it."""
_locking = threading.Lock()


class GpuTensorRows(GpuRows):
    """Rows of a tensor by position, gathered by a GPU."""

    def __init__(self, placement: TensorPlacement, device: Device, max_sms: int | str, threads: int) -> None:
        sms = parse_sms(max_sms)
        super().__init__(WHAT, load_tensor_tiers(placement, device, threads), sms)
        self._placement, self._source, self._threads = placement, placement.source, threads

    def take(self, positions: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return the rows at `positions`, as bytes; positions of no tier are passed over."""
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
