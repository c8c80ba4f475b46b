"""A tensor in hand where a GPU reads it: copies in its memory and its peers', the rest in page-locked host memory."""

from __future__ import annotations

import hashlib
import threading
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from tiering import cuda, native
from tiering.errors import BudgetError, InputError
from tiering.formats.layout import peer_rows
from tiering.loader.gpu import device as gpu_device
from tiering.loader.gpu.device import Device, parse_sms, pinned, pinned_address
from tiering.loader.gpu.links import unless_slower
from tiering.loader.gpu.peer_memory import share_memory
from tiering.loader.gpu.rows import GpuRows
from tiering.loader.gpu.tiers import STAGING_BYTES, MemoryTiers, StagedRows
from tiering.loader.processes.peers import PeerGroup, find_group
from tiering.loader.tables.resident import SharedBlock, anonymous, get_or_fill
from tiering.loader.tiered_tensor.host import WHAT, cpu_rows, require_memory
from tiering.loader.tiered_tensor.in_hand import TensorInHand
from tiering.loader.tiered_tensor.placement import CopiedRows, TensorPlacement, place_rows
from tiering.units import format_bytes

if TYPE_CHECKING:
    import torch

_COMPARED_BYTES = 4096
"""Bytes at each end of the tensor by which processes find that theirs is another one."""
_ADVICE = "give a smaller `gpu` or `peer`, or end other programs on this GPU"


class GpuTensorRows(GpuRows):
    """Places of a tensor, gathered by a GPU."""

    def __init__(
        self,
        tensor: TensorInHand,
        placement: TensorPlacement,
        device: Device,
        memory: MemoryTiers,
        group: PeerGroup | None,
        max_sms: int | None,
        threads: int,
    ) -> None:
        entry = placement.entry(tensor.row_bytes, on_disk=tensor.on_disk)
        super().__init__(WHAT, entry, device, memory, max_sms=max_sms, group=group)
        self._what, self._tensor, self._threads = WHAT, tensor, threads
        self._skipped = placement.skipped

    def _make_staging(self) -> StagedRows | None:
        rows = self._entry.rows("ssd")
        if not rows:
            return None
        file = self._tensor.data[self._skipped * self.row_bytes :]
        table = native.TieredTable(self.row_bytes, [0, 0, 0, rows], None, [], None, None, ssd=file)
        what = f"{WHAT}: buffers for rows of the file"
        return StagedRows(table, self.row_bytes, self.device, self._threads, STAGING_BYTES, what)

    def _place(self, tier: str) -> str:
        if tier == "ssd" and self._tensor.file is not None and not self.closed:
            return f"{self._tensor.file} (mapped)"
        return super()._place(tier)


class GpuStore:
    """A tensor whose rows arrive in the memory of a GPU."""

    def __init__(
        self, tensor: TensorInHand, placement: TensorPlacement, rows: GpuTensorRows, table: torch.Tensor | None
    ) -> None:
        self.tensor, self.placement, self.rows = tensor, placement, rows
        self.device = rows.device.torch_device
        self.table = table
        """Place of each row, in the memory of the GPU; ``None``: its number."""

    @classmethod
    def make(
        cls,
        tensor: TensorInHand,
        sizes: tuple[int, int, str | int],
        scores: npt.NDArray[np.float64] | None,
        index: int,
        peers: Any,
        max_sms: int | str,
        threads: int,
    ) -> GpuStore:
        """Copy the hottest rows. `sizes`: rows of the gpu tier, of each peer's share, and the size of the cpu tier."""
        device = gpu_device.open_device(index)
        sms, group = parse_sms(max_sms), find_group(peers)
        own, share, cpu = sizes
        host = cpu_rows(cpu, tensor) if tensor.on_disk else 0
        topic = ""
        if group is not None:
            topic = group.numbered("tiered-tensor")
            host = min(group.exchange(f"{topic}/memory", host))  # they look at what is free at different times
        peer = share * (group.size if group else 1)
        placement, rows = place_rows(tensor.num_rows, (own, peer, host), scores, threads)
        if group is not None and len(set(group.exchange(f"{topic}/rows", _digest(tensor, placement, rows)))) > 1:
            raise InputError(f"{WHAT}: expected the same tensor, sizes and order from all peers, found different ones")
        memory = _Loading(tensor, placement, rows, device, group, topic, threads).load()
        with cuda.device_errors(WHAT):
            table = _upload_table(placement, rows, device)
        return cls(tensor, placement, GpuTensorRows(tensor, placement, device, memory, group, sms, threads), table)

    def ids(self, ids: Any) -> torch.Tensor:
        """Row numbers where the table of places lies: int64, shape (n,)."""
        return self.rows.ids_on_device(ids)

    def has(self, out: torch.Tensor) -> bool:
        """Whether rows can be gathered into `out`."""
        return self.rows.device.has(out)

    def take(self, places: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Rows of places, as bytes; places that are no tier's are passed over."""
        self.rows.device.keep([places])
        return self.rows.gather(places, out=out, checked=False)

    def close(self) -> None:
        """Give memory back."""
        self.rows.close()
        self.table = None


class _Loading:
    """Fills the tiers of one tensor. Where memory does not suffice, nothing stays allocated."""

    def __init__(
        self,
        tensor: TensorInHand,
        placement: TensorPlacement,
        rows: CopiedRows,
        device: Device,
        group: PeerGroup | None,
        topic: str,
        threads: int,
    ) -> None:
        self.tensor, self.placement, self.rows, self.device = tensor, placement, rows, device
        self.group, self.threads = group, threads
        self.tiers = MemoryTiers(topic=topic)

    def load(self) -> MemoryTiers:
        """Copy to the GPU, to this process's share of the peer tier, and to page-locked host memory; lock the rest."""
        tiers = self.tiers
        if self.rows.gpu.size:
            memory = self._copy_to_gpu(self.rows.gpu, "gpu", shared=False)
            tiers.owners.append(memory)
            tiers.gpu = memory.address
        if self.rows.peer.size:
            self._load_peers()
        if self.rows.cpu.size:
            tiers.cpu = self._pinned_copy(self.rows.cpu, "cpu")
        elif self.placement.in_place and not self.tensor.on_disk:
            tiers.cpu = self._lock_tensor()
        return tiers

    def _load_peers(self) -> None:
        rank, size = (self.group.rank, self.group.size) if self.group else (0, 1)
        shares = [self.rows.peer[peer::size] for peer in range(size)]
        own = self._copy_to_gpu(shares[rank], "peer", shared=self.group is not None) if shares[rank].size else None
        opened: list[cuda.DeviceMemory | cuda.PeerMemory | None] = [own]
        if self.group:
            opened = share_memory(self.group, self.tiers.topic, own, self.device, WHAT)
        for peer, (share, memory) in enumerate(zip(shares, opened, strict=True)):
            assert share.size == peer_rows(self.rows.peer.size, peer, size)
            address, place = 0, "empty"
            if peer != rank:
                nbytes = share.size * self.tensor.row_bytes
                memory = unless_slower(memory, self.device.index, nbytes, f"{WHAT}: rows of peer {peer}")
            if memory is not None:
                self.tiers.owners.append(memory)
                address, place = memory.address, f"GPU of peer {peer}"
            elif share.size:
                address, place = self._pinned_copy(share, f"peer-{peer}"), "host memory"
            self.tiers.peers.append(address)
            self.tiers.peer_places.append(place)

    def _copy_to_gpu(self, ids: npt.NDArray[np.int64], option: str, *, shared: bool) -> cuda.DeviceMemory:
        """Copies of rows in memory of the GPU, through two pinned buffers in turn."""
        gpu, row_bytes, what = self.device.index, self.tensor.row_bytes, f"{WHAT}: {option}"
        ids = np.ascontiguousarray(ids)
        with cuda.device_errors(what, _ADVICE):
            memory = cuda.allocate(gpu, ids.size * row_bytes, shared)
            stream, copied = cuda.Stream(gpu), [cuda.Event(gpu) for _ in range(2)]
        step = min(ids.size, max(1, STAGING_BYTES // row_bytes))
        buffers = [pinned(gpu, step * row_bytes, np.uint8, what) for _ in range(2)]
        with cuda.device_errors(what):
            for turn, start in enumerate(range(0, ids.size, step)):
                part = ids[start : start + step]
                copied[turn % 2].wait()  # an event that was never recorded is over
                array, address = buffers[turn % 2]
                self.tensor.copy_rows(part, array[: part.size * row_bytes].reshape(-1, row_bytes), self.threads)
                cuda.copy(gpu, memory.address + start * row_bytes, address, part.size * row_bytes, stream.handle)
                copied[turn % 2].record(stream.handle)
            stream.synchronize()
        return memory

    def _pinned_copy(self, ids: npt.NDArray[np.int64], tier: str) -> int:
        """Copies of rows in page-locked host memory: one for all processes of a group."""
        ids, nbytes = np.ascontiguousarray(ids), ids.size * self.tensor.row_bytes

        def fill(array: npt.NDArray[np.uint8]) -> None:
            require_memory(nbytes, "cpu")
            self.tensor.copy_rows(ids, array.reshape(-1, self.tensor.row_bytes), self.threads)

        if self.group is None:
            rows = SharedBlock(WHAT, anonymous(nbytes))
            fill(rows.array)
        else:
            rows = get_or_fill(WHAT, (self.tiers.topic, tier), nbytes, fill, self.group)
        self.tiers.owners.append(rows)
        return pinned_address(rows, self.device.index, f"{WHAT}: copies of rows")

    def _lock_tensor(self) -> int:
        """Page-lock the tensor itself, unless torch has."""
        begin = self.placement.skipped * self.tensor.row_bytes
        data = self.tensor.data[begin:]
        if not isinstance(self.tensor.held, np.ndarray) and self.tensor.held.is_pinned():
            return int(data.ctypes.data)
        key = data.ctypes.data, data.nbytes
        with _locking:
            rows = _locked.get(key)
            if rows is None:
                rows = _locked[key] = SharedBlock(WHAT, data)
        self.tiers.owners.append(rows)
        return pinned_address(rows, self.device.index, f"{WHAT}: page-locking the rows that are not copied")


_locked: WeakValueDictionary[tuple[int, int], SharedBlock] = WeakValueDictionary()
"""Tensors that are page-locked, by address and bytes: memory is locked once, however many read it."""
_locking = threading.Lock()


def _digest(tensor: TensorInHand, placement: TensorPlacement, rows: CopiedRows) -> str:
    """The same where processes copy the same rows of tensors of one shape, which begin and end alike."""
    digest = hashlib.blake2b(repr((tensor.shape, str(tensor.dtype), placement)).encode(), digest_size=16)
    for part in (rows.gpu, rows.peer, rows.cpu, tensor.data[:_COMPARED_BYTES], tensor.data[-_COMPARED_BYTES:]):
        digest.update(part.data)
    return digest.hexdigest()


def _upload_table(placement: TensorPlacement, rows: CopiedRows, device: Device) -> torch.Tensor | None:
    if not placement.needs_table:
        return None
    table = placement.table(rows)
    try:
        return device.upload(table)
    except RuntimeError as error:  # torch's word for too little memory
        raise BudgetError(
            f"{WHAT}: no memory of the GPU for the table of places ({format_bytes(table.nbytes)}): {error}; {_ADVICE}"
        ) from error
