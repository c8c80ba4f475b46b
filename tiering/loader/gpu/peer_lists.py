"""Adjacency lists spread over the GPUs of several processes: those next in rank after the ones that each GPU holds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering import cuda
from tiering.formats.adjacency_prefix import INDPTR_BYTES
from tiering.loader.gpu.device import Device
from tiering.loader.gpu.peers import PeerGroup, open_memory

_PIECE_EDGES = 1 << 24


@dataclass(frozen=True)
class Columns:
    """One relation's lists as they lie on the host."""

    indptr: npt.NDArray[np.int64]
    """Shape (columns + 1,)."""
    indices: npt.NDArray[Any]
    """int32 or int64, shape (edges,)."""
    sums: npt.NDArray[np.uint64] | None
    """Running sums of weights, shape (edges,); ``None`` unless edges are drawn by weight."""

    @property
    def edge_bytes(self) -> int:
        """Bytes of an edge on a GPU."""
        return self.indices.itemsize + (0 if self.sums is None else self.sums.itemsize)

    def share_bytes(self, begin: int, end: int, peer: int, peers: int) -> int:
        """What columns [begin, end) take on one of the GPUs that they are interleaved over."""
        columns = max(0, -(-(end - begin - peer) // peers))
        return (2 * columns + 1) * INDPTR_BYTES + self.share_edges(begin, end, peer, peers) * self.edge_bytes

    def share_edges(self, begin: int, end: int, peer: int, peers: int) -> int:
        """Edges of columns [begin, end) on one of those GPUs."""
        starts = self.indptr[begin + peer : end : peers]
        return int((self.indptr[begin + peer + 1 : end + 1 : peers] - starts).sum())


def end_of_columns(relations: list[Columns], begins: list[int], peers: int, nbytes: int) -> list[int]:
    """Where each relation's columns on the peers end, so that no GPU holds more than `nbytes` of them.

    The same share of every relation's remaining columns is taken, the largest that fits.

    Notes
    -----
    Cost: one pass over indptr for each of about 20 trials.
    """

    def ends(share: float) -> list[int]:
        return [
            begin + int(share * (each.indptr.size - 1 - begin)) for each, begin in zip(relations, begins, strict=True)
        ]

    def fits(share: float) -> bool:
        each_end = list(zip(relations, begins, ends(share), strict=True))
        return all(
            sum(each.share_bytes(begin, end, peer, peers) for each, begin, end in each_end) <= nbytes
            for peer in range(peers)
        )

    if fits(1.0):
        return ends(1.0)
    low, high = 0.0, 1.0
    for _ in range(20):
        middle = (low + high) / 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return ends(low)


@dataclass
class PeerParts:
    """The shares of all GPUs as this process's GPU reads them."""

    parts: list[cuda.Part] = field(default_factory=list)
    owners: list[Any] = field(default_factory=list)


def share_columns(
    relation: Columns, begin: int, end: int, group: PeerGroup, device: Device, topic: str, what: str
) -> PeerParts:
    """Put this process's share of columns [begin, end) on its GPU, and open those of the others.

    Returns
    -------
    PeerParts
        Without parts if any of the others cannot be reached: then lists are read from host memory. Its owners must be
        kept all the same: the others may read this process's share.
    """
    made = PeerParts()
    own = _own_share(relation, begin, end, group, device, what)
    with cuda.device_errors(what):
        handles = ["" if memory is None else memory.share().hex() for memory in own]
    edges = relation.share_edges(begin, end, group.rank, group.size)
    shares = group.exchange(group.occasion(topic), {"handles": handles, "edges": edges})
    for rank, share in enumerate(shares):
        memories: list[Any] = [*own]
        if rank != group.rank:
            whose = f"adjacency lists of peer {rank}"
            memories = [open_memory(bytes.fromhex(each), device, whose) for each in share["handles"]]
        made.owners += [memory for memory in memories if memory is not None]
        begins, indices, sums, firsts = (0 if memory is None else memory.address for memory in memories)
        made.parts.append((begins, indices, sums, firsts, share["edges"]))
        if any(each and memory is None for each, memory in zip(share["handles"], memories, strict=True)):
            made.owners += own
            made.parts = []
            break
    return made


def _own_share(
    relation: Columns, begin: int, end: int, group: PeerGroup, device: Device, what: str
) -> list[cuda.DeviceMemory | None]:
    """Begins, indices, sums and firsts of this process's columns, on its GPU; ``None`` where there is nothing."""
    starts = np.asarray(relation.indptr[begin + group.rank : end : group.size])
    degrees = np.asarray(relation.indptr[begin + group.rank + 1 : end + 1 : group.size]) - starts
    begins = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    edges = int(begins[-1])
    made: list[cuda.DeviceMemory | None] = []
    with cuda.device_errors(what, "spread fewer lists (peer_lists), or make the layout's gpu tier smaller"):
        stream = cuda.Stream(device.index)
        for array in (begins, relation.indices, relation.sums, starts):
            along_edges = array is relation.indices or array is relation.sums
            count = edges if along_edges else 0 if array is None else array.size
            if array is None or not count:
                made.append(None)
                continue
            memory = cuda.DeviceMemory(device.index, count * array.itemsize, shared=True)
            pieces = _lists(array, starts, degrees) if along_edges else iter([np.ascontiguousarray(array)])
            at = memory.address
            for piece in pieces:
                cuda.copy(device.index, at, piece.ctypes.data, piece.nbytes, stream.handle)
                stream.synchronize()  # before the piece goes
                at += piece.nbytes
            made.append(memory)
    return made


def _lists(
    array: npt.NDArray[Any], starts: npt.NDArray[np.int64], degrees: npt.NDArray[np.int64]
) -> Iterator[npt.NDArray[Any]]:
    """Entries of lists, one list behind the other, some of them at a time."""
    cuts = np.searchsorted(np.cumsum(degrees), np.arange(0, int(degrees.sum()) + _PIECE_EDGES, _PIECE_EDGES))
    for first, last in zip([0, *cuts[1:]], [*cuts[1:], degrees.size], strict=True):
        some, sizes = starts[first:last], degrees[first:last]
        if not sizes.sum():
            continue
        before = np.cumsum(sizes) - sizes
        yield np.ascontiguousarray(array[np.repeat(some - before, sizes) + np.arange(int(sizes.sum()))])
