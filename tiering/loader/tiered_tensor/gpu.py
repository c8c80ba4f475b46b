"""A tiered tensor whose rows arrive on a GPU: copies in its memory and its peers, the rest in pinned host memory."""

from __future__ import annotations

import hashlib
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.errors import BudgetError, InputError
from tiering.loader.gpu import device as gpu_device
from tiering.loader.gpu.device import Device, parse_sms, pinned_address
from tiering.loader.gpu.rows import STAGING_BYTES, GpuRows, StagedRows
from tiering.loader.gpu.tiers import TierSource
from tiering.loader.processes.peers import PeerGroup, find_group
from tiering.loader.tables.resident import SharedBlock, anonymous, get_or_fill
from tiering.loader.tiered_tensor.host import WHAT, count_cpu_rows, require_memory
from tiering.loader.tiered_tensor.source import CopiedRows, Ids, SourceTensor, TensorPlacement, place_rows
from tiering.units import format_bytes

if TYPE_CHECKING:
    import torch

_COMPARED_BYTES = 4096  # bytes at each end of the tensor by which processes notice that theirs is another one
_ADVICE = "give a smaller `gpu` or `peer`, or end other programs on this GPU"
_locked: WeakValueDictionary[tuple[int, int], SharedBlock] = WeakValueDictionary()
"""Tensors that are pinned, by address and bytes: memory can be pinned once, however many read it."""
_locking = threading.Lock()


class GpuTensorRows(GpuRows):
    """Rows of a tensor by position, gathered by a GPU."""

    def __init__(self, tiers: TensorTiers, max_sms: int | None) -> None:
        super().__init__(WHAT, tiers, max_sms)
        self._source, self._threads, self._skipped = tiers.source, tiers.threads, tiers.placement.skipped

    def take(self, positions: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return the rows at `positions`, as bytes; positions of no tier are passed over."""
        self.device.keep([positions])
        return self.gather(positions, out=out, checked=False)

    def _make_staging(self) -> StagedRows | None:
        if not self._entry.rows("ssd"):
            return None
        table, what = self._source.table(self._skipped), f"{WHAT}: buffers for rows of the file"
        return StagedRows(table, self.row_bytes, self.device, self._threads, STAGING_BYTES, what)

    def _place(self, tier: str) -> str:
        if tier == "ssd" and self._source.file is not None and not self.closed:
            return f"{self._source.file} (mapped)"
        return super()._place(tier)


def open_on_gpu(
    source: SourceTensor,
    sizes: tuple[int, int, str | int],
    scores: npt.NDArray[np.float64] | None,
    index: int,
    peers: Any,
    max_sms: int | str,
    threads: int,
) -> tuple[TensorPlacement, GpuTensorRows, torch.Tensor | None]:
    """Copy the hottest rows; returns placement, rows and table of positions.

    `sizes`: rows of the gpu tier and of each peer's share, size of the cpu tier.
    """
    device = gpu_device.open_device(index)
    sms, group = parse_sms(max_sms), find_group(peers)
    own, share, cpu = sizes
    count, topic = count_cpu_rows(cpu, source) if source.on_disk else 0, ""
    if group is not None:
        topic = group.numbered("tiered-tensor")
        count = min(group.exchange(f"{topic}/memory", count))  # they look at what is free at different times
    peer = share * (group.size if group else 1)
    placement, rows = place_rows(source.num_rows, (own, peer, count), scores, threads)
    if group is not None and len(set(group.exchange(f"{topic}/rows", _digest(source, placement, rows)))) > 1:
        raise InputError(f"{WHAT}: expected the same tensor, sizes and order from all peers, found different ones")
    tiered = GpuTensorRows(TensorTiers(source, placement, rows, device, group, topic, threads), sms)
    with cuda.device_errors(WHAT):
        return placement, tiered, _upload_table(placement, rows, device)


class TensorTiers(TierSource):
    """The rows of a tensor that go to each tier."""

    def __init__(
        self,
        source: SourceTensor,
        placement: TensorPlacement,
        rows: CopiedRows,
        device: Device,
        group: PeerGroup | None,
        topic: str,
        threads: int,
    ) -> None:
        entry = placement.entry(source.row_bytes, on_disk=source.on_disk)
        super().__init__(WHAT, entry, device, group, topic, group.size if group else 1)
        self.source, self.placement, self.rows, self.threads = source, placement, rows, threads

    def copy_to_gpu(self, tier: str, peer: int, *, shared: bool = False) -> cuda.DeviceMemory:
        """Copy rows to memory of the GPU."""
        gpu, ids, row_bytes, what = self.device.index, self._ids(tier, peer), self.source.row_bytes, f"{WHAT}: {tier}"
        with cuda.device_errors(what, _ADVICE):
            memory, stream = cuda.allocate(gpu, ids.size * row_bytes, shared), cuda.Stream(gpu)
        nbytes = min(STAGING_BYTES, ids.size * row_bytes)
        staged = StagedRows(self.source.table(), row_bytes, self.device, self.threads, nbytes, what)
        with cuda.device_errors(what):
            staged.copy(ids, 0, memory.address, stream.handle, max_sms=0)
            stream.synchronize()
        return memory

    def pin_on_host(self, tier: str, peer: int) -> tuple[SharedBlock, int]:
        """Copy rows to pinned host memory, one copy for the processes of a group; a tensor in memory stays there."""
        if tier == "cpu" and not self.source.on_disk:
            block = _tensor_block(self.source, self.placement.skipped)
            what = f"{WHAT}: page-locking the rows that are not copied"
            return block, pinned_address(block, self.device.index, what)
        ids = self._ids(tier, peer)
        nbytes = ids.size * self.source.row_bytes

        def fill(array: npt.NDArray[np.uint8]) -> None:
            require_memory(nbytes)
            self.source.copy_rows(ids, array.reshape(-1, self.source.row_bytes), self.threads)

        if self.group is None:
            block = SharedBlock(WHAT, anonymous(nbytes))
            fill(block.array)
        else:
            block = get_or_fill(WHAT, (self.topic, f"{tier}-{peer}"), nbytes, fill, self.group)
        return block, pinned_address(block, self.device.index, f"{WHAT}: copies of rows")

    def _ids(self, tier: str, peer: int) -> Ids:
        """Return the row numbers of a tier's rows; of the peer tier those of one share."""
        ids, step = self.rows[tier], self.group.size if self.group and tier == "peer" else 1
        return np.ascontiguousarray(ids[peer::step])


def _tensor_block(source: SourceTensor, skipped: int) -> SharedBlock:
    """Return the memory of a tensor from row `skipped` on, as a block that can be pinned, or is by torch."""
    data = source.data[skipped * source.row_bytes :]
    if not isinstance(source.owner, np.ndarray) and source.owner.is_pinned():
        block = SharedBlock(WHAT, data)
        block.registration = SimpleNamespace(address=int(data.ctypes.data))
        return block
    with _locking:
        block_or_none = _locked.get((data.ctypes.data, data.nbytes))
        block = SharedBlock(WHAT, data) if block_or_none is None else block_or_none
        _locked[data.ctypes.data, data.nbytes] = block
    return block


def _digest(source: SourceTensor, placement: TensorPlacement, rows: CopiedRows) -> str:
    """Return the same text where processes copy the same rows of tensors of one shape, which begin and end alike."""
    digest = hashlib.blake2b(repr((source.shape, str(source.dtype), placement)).encode(), digest_size=16)
    ends: list[npt.NDArray[Any]] = [source.data[:_COMPARED_BYTES], source.data[-_COMPARED_BYTES:]]
    for part in [*rows.values(), *ends]:
        digest.update(part.data)
    return digest.hexdigest()


def _upload_table(placement: TensorPlacement, rows: CopiedRows, device: Device) -> torch.Tensor | None:
    if not placement.needs_table:
        return None
    table = placement.table(rows)
    try:
        return device.upload(table)
    except RuntimeError as error:  # torch's class for too little memory
        what = f"no memory of the GPU for the table of positions ({format_bytes(table.nbytes)})"
        raise BudgetError(f"{WHAT}: {what}: {error}; {_ADVICE}") from error
