"""The CUDA part. Memory crosses as addresses, streams as handles (both whole numbers; 0: none)."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

architectures: str
"""Compute capabilities the kernels were compiled for, such as ``80 90``; ``simulated`` in a build for tests."""

class CudaError(RuntimeError):
    """A call of the CUDA runtime failed."""

class OutOfMemoryError(MemoryError):
    """Memory of a GPU, or host memory to lock, does not suffice: (message, bytes wanted, bytes free or -1)."""

class DeviceInfo:
    """What a GPU is."""

    name: str
    capability: str
    multiprocessors: int
    total_bytes: int
    pci_bus: str

def versions() -> tuple[int, int]:
    """Newest CUDA that the driver serves (0: no driver) and CUDA of this build; 13000 is 13.0."""

def count_devices() -> int:
    """GPUs; raises CudaError where there is no driver or it is too old."""

def device_info(device: int) -> DeviceInfo: ...
def free_bytes(device: int) -> int: ...
def can_access(device: int, peer: int) -> bool:
    """Whether kernels on `device` can read the memory of `peer`."""

def enable_access(device: int, peer: int) -> None:
    """Lets them, for memory of this process."""

class DeviceMemory:
    """Memory of a GPU; given back with the object. `shared`: may be shared with other processes."""

    def __init__(self, device: int, nbytes: int, shared: bool = False) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    device: int
    def share(self) -> bytes:
        """What `PeerMemory` opens in another process."""

class PinnedMemory:
    """Page-locked host memory that every GPU reads; given back with the object."""

    def __init__(self, nbytes: int) -> None: ...
    @property
    def address(self) -> int: ...
    @property
    def nbytes(self) -> int: ...
    def array(self) -> NDArray[np.uint8]:
        """The memory as an array; keeps it alive."""

class Registration:
    """Page-locks memory of somebody else's for as long as it lives."""

    def __init__(self, memory: int, nbytes: int) -> None: ...
    @property
    def address(self) -> int:
        """Where GPUs find it."""

class PeerMemory:
    """`DeviceMemory` of another process, opened."""

    def __init__(self, device: int, handle: bytes) -> None: ...
    @property
    def address(self) -> int: ...

class Stream:
    """A stream of a GPU that does not wait for the default one."""

    def __init__(self, device: int) -> None: ...
    @property
    def handle(self) -> int: ...
    def synchronize(self) -> None: ...

class Event:
    """A point in a stream."""

    def __init__(self, device: int) -> None: ...
    def record(self, stream: int) -> None: ...
    def wait(self) -> None:
        """Waits on the host."""
    def done(self) -> bool: ...

def wait_event(stream: int, event: Event) -> None:
    """Lets what is put on `stream` from now on wait for `event`."""

def fill_device(
    device: int,
    into: int,
    path: str,
    offset: int,
    nbytes: int,
    engine: str,
    direct: bool = True,
    chunk: int = 16777216,
) -> None:
    """Read bytes of a file into memory of a GPU through two pinned buffers; returns when they are there."""

def copy(device: int, into: int, source: int, nbytes: int, stream: int) -> None:
    """Put a copy between any two memories on a stream of a GPU."""

class RowTable:
    """Rows over tiers; see ``ext/include/tiering/device/row_table.hpp``. Owns no memory."""

    def __init__(
        self,
        device: int,
        row_bytes: int,
        ends: Sequence[int],
        gpu: int,
        peers: Sequence[int],
        cpu: int,
        staged: int = 0,
    ) -> None: ...
    def gather(
        self,
        ids: int,
        count: int,
        out: int,
        stream: int,
        places: int = 0,
        slots: int = 0,
        first_bad: int = 0,
        max_sms: int = 0,
    ) -> None:
        """Put a gather on a stream; see ``ext/cuda/include/tiering/cuda/gather_rows.hpp``."""

class RequestCompactor:
    """Lists the requests for rows that lie in no memory, and counts requests by tier."""

    def __init__(self, device: int) -> None: ...
    def compact(
        self,
        ids: int,
        count: int,
        first: int,
        compacted: int,
        places: int,
        num_compacted: int,
        ends: Sequence[int],
        stream: int,
    ) -> None: ...
    def totals(self) -> list[int]:
        """Rows of each tier in all requests; those must have been done."""

Part: TypeAlias = tuple[int, int, int, int, int]
"""(begins, indices, sums, firsts, edges)."""
Adjacency: TypeAlias = tuple[int, int, bool, int, int, Part, list[Part], Part]
"""(source type, destination type, int64 ids, local columns, end of the peers' columns, local, peers, host)."""
Keys: TypeAlias = tuple[int, int, int, bool]
"""(local keys, how many, all keys in host memory, int64)."""

class Sampler:
    """Samples on a GPU; see ``ext/cuda/include/tiering/cuda/sampler.hpp``."""

    def __init__(
        self,
        device: int,
        num_nodes: Sequence[int],
        relations: Sequence[Adjacency],
        fanouts: Sequence[Sequence[int]],
        only_new: bool,
        rule: str,
        node_keys: Sequence[Keys],
        seed: int,
        positions: bool = False,
    ) -> None: ...
    def start(self, seeds: Sequence[tuple[int, int]], epoch: int, batch: int, stream: int) -> None: ...
    def finish(self) -> tuple[list[list[int]], list[list[int]]]:
        """(hops + 1) x type nodes, hop x relation edges."""
    def write_nodes(self, node_type: int, out: int, stream: int) -> None: ...
    def write_edges(self, hop: int, relation: int, out: int, stream: int) -> None: ...
    def write_positions(self, hop: int, relation: int, out: int, stream: int) -> None: ...
    @property
    def device_bytes(self) -> int: ...
