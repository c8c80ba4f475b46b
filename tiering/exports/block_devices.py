"""Block devices that are to be written without a file system: what each is, what lies on it, and who uses it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tiering.artifacts.direct_io import aligned_bytes
from tiering.artifacts.storage import storage_errors
from tiering.errors import CapabilityError, InputError, StorageError

_BY_ID = Path("/dev/disk/by-id")
_SECTOR = 512
"""Bytes of the unit that the system counts sizes of devices in."""
_ENDS = 1 << 20
"""Bytes at either end of a device, where what has signatures keeps them."""
_NOTHING_FOUND, _CONTRADICTIONS = 2, 8
"""Exit codes of blkid."""
WRITE, LOOK, READ = os.O_RDWR | os.O_EXCL, os.O_RDONLY | os.O_EXCL, os.O_RDONLY
"""How a device is opened: alone, to be written or only looked at; or together with others that read it."""


@dataclass(frozen=True)
class BlockDevice:
    """A block device as the system describes it."""

    path: Path
    """As it was given."""
    number: str
    """``major:minor``: what tells devices apart, whatever they are called."""
    bytes: int
    block_bytes: int
    """Of a logical block."""
    read_only: bool
    model: str
    """Model and serial number; empty where the system does not know them."""
    partitions: tuple[str, ...]
    holders: tuple[str, ...]
    """Devices that are made of it or of its partitions: RAID, LVM, encryption."""

    @property
    def name(self) -> str:
        """A name that stays when devices are found in another order, if it has one."""
        same = [link for link in sorted(_BY_ID.glob("*")) if link.resolve() == self.path.resolve()]
        stay = [link for link in same if not link.name.startswith("lvm-pv-uuid-")]  # of what is written over
        return str(stay[0]) if stay else str(self.path)

    @property
    def used_by(self) -> str:
        """Who uses it or its partitions, in words, as far as this process can see; empty: nobody that it sees."""
        blocks = Path("/sys/class/block")
        numbers = {self.number, *(_word(blocks / name / "dev") for name in self.partitions)}
        mounts = [line.split() for line in _word(Path("/proc/self/mountinfo")).splitlines()]
        places = [f"mounted at {mount[4]}" for mount in mounts if mount[2] in numbers]
        names = {str(self.path.resolve()), *(f"/dev/{name}" for name in self.partitions)}
        swaps = [line.split()[0] for line in _word(Path("/proc/swaps")).splitlines()]
        places += [f"swap on {swap}" for swap in swaps if swap in names]
        return ", ".join([*places, *(f"part of {holder}" for holder in self.holders)])


def describe_device(path: Path) -> BlockDevice:
    """Look at a device without opening it; `InputError` if `path` is none."""
    with storage_errors(path):
        status = path.stat()
    if not stat.S_ISBLK(status.st_mode):
        raise InputError(f"{path}: expected a block device, such as /dev/nvme1n1, found another kind of file")
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    known = (Path("/sys/dev/block") / number).resolve()
    disk = known.parent if (known / "partition").exists() else known
    partitions = sorted(entry.parent for entry in known.glob("*/partition"))
    holders = [holder.name for part in (known, *partitions) for holder in sorted(part.glob("holders/*"))]
    words = [_word(disk / "device" / word) for word in ("model", "serial")]
    return BlockDevice(
        path, number, int(_word(known / "size") or 0) * _SECTOR,
        int(_word(disk / "queue/logical_block_size") or _SECTOR), _word(known / "ro") == "1",
        " ".join(word for word in words if word), tuple(part.name for part in partitions), tuple(holders),
    )  # fmt: skip


def contents_of(device: BlockDevice, fd: int) -> str:
    """What lies on a device that is open as `fd`, in words, as blkid tells by signatures; empty: nothing it knows.

    Raises
    ------
    CapabilityError
        If blkid (of util-linux) is missing.
    StorageError
        If the device cannot be read: blkid itself reports that as nothing found.
    """
    if device.partitions:
        return f"the partitions {', '.join(device.partitions)}"
    if shutil.which("blkid") is None:
        raise CapabilityError(
            f"{device.path}: expected the program blkid, which tells what lies on a device; install util-linux"
        )
    memory = aligned_bytes(min(_ENDS, device.bytes))
    with storage_errors(device.path):
        for offset in (0, device.bytes - memory.size) if memory.size else ():
            os.preadv(fd, [memory.data], offset)
    done = subprocess.run(
        ["blkid", "--probe", "--output", "export", str(device.path)], capture_output=True, text=True, check=False
    )
    if done.returncode == _NOTHING_FOUND and not done.stderr:
        return ""
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if done.returncode == 0 and "PTTYPE" in found:
        return f"a partition table ({found['PTTYPE']})"
    if done.returncode == 0 and "TYPE" in found:
        return f"{found.get('USAGE', 'data')} ({found['TYPE']})"
    if done.returncode in (0, _CONTRADICTIONS):
        return "signatures of several kinds"
    raise StorageError(errno.EIO, f"{device.path}: blkid cannot say what lies on it: {done.stderr.strip()}")


@contextmanager
def opened(devices: Sequence[BlockDevice], how: int) -> Iterator[list[int]]:
    """Open devices for direct I/O, as `WRITE`, `LOOK` or `READ`; `StorageError` if one is in use that is wanted alone.

    The system refuses what is mounted, holds swap, or is part of another device, whole or by a partition, and while a
    device is open alone, nobody can begin to use it so.
    """
    with ExitStack() as stack:
        fds = []
        for device in devices:
            try:
                fds.append(os.open(device.path, how | os.O_DIRECT | os.O_CLOEXEC))
            except OSError as error:
                raise _refused(device, error) from None
            stack.callback(os.close, fds[-1])
        yield fds


def _refused(device: BlockDevice, error: OSError) -> StorageError:
    if error.errno != errno.EBUSY:
        return StorageError(error.errno, f"{device.path}: {error.strerror}; nothing was written")
    by = f" ({device.used_by})" if device.used_by else ""
    return StorageError(
        errno.EBUSY,
        f"{device.path}: it is in use{by}: unmount it, or take it out of what uses it; nothing was written",
    )


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
