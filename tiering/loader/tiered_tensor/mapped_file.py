"""Which file lies behind memory that somebody else has mapped: NumPy's memmaps, torch's, and tensors made from them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tiering.artifacts.storage import storage_errors
from tiering.errors import CapabilityError, FormatError


@dataclass(frozen=True)
class MappedFile:
    """Bytes of a file that lie in the memory of this process by ``mmap``."""

    path: Path
    offset: int
    nbytes: int
    identity: tuple[int, int]
    """Device and inode."""
    own_copy: bool
    """Whether what this process writes stays its own (copy-on-write), so that memory may differ from the file."""

    @property
    def on_disk(self) -> bool:
        """``False`` for shared memory and huge pages, which are files of the kernel's."""
        return not str(self.path).startswith(("/memfd:", "/dev/", "/SYSV", "/anon_hugepage"))

    def require_shared(self) -> None:
        """Raise `CapabilityError` unless the file holds what memory holds."""
        if self.own_copy:
            raise CapabilityError(
                f"{self.path} is mapped copy-on-write, and what was written to the mapping is not in the file; map it "
                "shared (np.memmap with mode='r', torch.from_file with shared=True) to use it in another process"
            )

    def open(self) -> npt.NDArray[np.uint8]:
        """The same bytes, mapped again, read-only: in any process of this machine.

        `FormatError` if another file has taken the place of this one, or it was cut.
        """
        with storage_errors(self.path):
            status = self.path.stat()
        if (status.st_dev, status.st_ino) != self.identity or status.st_size < self.offset + self.nbytes:
            raise FormatError(
                f"{self.path}: the file was replaced or cut after it was mapped; expected at least "
                f"{self.offset + self.nbytes} bytes of the same file, found {status.st_size}; make the tensor again"
            )
        with storage_errors(self.path):
            return np.asarray(np.memmap(self.path, np.uint8, "r", self.offset, (self.nbytes,)))


def find_mapped_file(array: npt.NDArray[np.uint8]) -> MappedFile | None:
    """The file that the bytes of a contiguous array are mapped from; ``None`` for memory of no file."""
    address = array.ctypes.data
    if array.nbytes == 0:
        return None
    for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
        fields = line.split(maxsplit=5)
        begin, end = (int(bound, 16) for bound in fields[0].split("-"))
        if not begin <= address < end:
            continue
        if int(fields[4]) == 0 or len(fields) < 6:
            return None
        # Which inode the kernel names here is not always that of `stat` (overlayfs); a file that is gone is marked so.
        path = Path(fields[5])
        status = path.stat() if path.exists() else None
        identity = (0, 0) if status is None else (status.st_dev, status.st_ino)
        own_copy = fields[1].endswith("p") and "w" in fields[1]
        return MappedFile(path, int(fields[2], 16) + address - begin, array.nbytes, identity, own_copy)
    return None
