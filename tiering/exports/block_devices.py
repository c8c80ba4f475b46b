"""Block devices that are to be written without a file system: what each is, what lies on it, and who uses it."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tiering.artifacts.storage import storage_errors
from tiering.errors import CapabilityError, InputError, StorageError

_BY_ID = Path("/dev/disk/by-id")
_SECTOR = 512
"""Bytes of the unit that the system counts sizes of devices in."""
_NOTHING_FOUND = 2
"""Exit code of blkid."""


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
        return str(same[0]) if same else str(self.path)


def describe_device(path: Path) -> BlockDevice:
    """Look at a device without opening it; `InputError` if `path` is none."""
    with storage_errors(path):
        status = path.stat()
    if not stat.S_ISBLK(status.st_mode):
        raise InputError(f"{path}: expected a block device, such as /dev/nvme1n1, found another kind of file")
    number = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    known = Path("/sys/dev/block") / number
    partitions = sorted(entry.parent for entry in known.glob("*/partition"))
    holders = [holder.name for part in (known, *partitions) for holder in sorted(part.glob("holders/*"))]
    words = [_word(known / "device" / word) for word in ("model", "serial")]
    return BlockDevice(
        path, number, int(_word(known / "size") or 0) * _SECTOR,
        int(_word(known / "queue/logical_block_size") or _SECTOR), _word(known / "ro") == "1",
        " ".join(word for word in words if word), tuple(part.name for part in partitions), tuple(holders),
    )  # fmt: skip


def contents_of(device: BlockDevice) -> str:
    """What lies on a device, in words, as blkid tells by signatures; empty: nothing that it knows.

    Raises
    ------
    CapabilityError
        If blkid (of util-linux) is missing.
    StorageError
        If it cannot read the device.
    """
    if device.partitions:
        return f"the partitions {', '.join(device.partitions)}"
    if shutil.which("blkid") is None:
        raise CapabilityError(
            f"{device.path}: expected the program blkid, which tells what lies on a device; install util-linux"
        )
    done = subprocess.run(
        ["blkid", "--probe", "--output", "export", str(device.path)], capture_output=True, text=True, check=False
    )
    if done.returncode == _NOTHING_FOUND:
        return ""
    found = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    if done.returncode == 0 and "PTTYPE" in found:
        return f"a partition table ({found['PTTYPE']})"
    if done.returncode == 0 and "TYPE" in found:
        return f"{found.get('USAGE', 'data')} ({found['TYPE']})"
    if done.returncode == 0 or "ambivalent" in done.stderr:  # signatures that contradict each other
        return "signatures of several kinds"
    raise StorageError(errno.EIO, f"{device.path}: blkid cannot say what lies on it: {done.stderr.strip()}")


def claim(device: BlockDevice, writing: bool = True) -> int:
    """Open a device for direct I/O, alone where it is to be written; `StorageError` if somebody else uses it.

    The system refuses what is mounted, holds swap, or is part of another device, whole or by a partition.
    """
    flags = os.O_RDWR | os.O_EXCL if writing else os.O_RDONLY
    try:
        return os.open(device.path, flags | os.O_DIRECT | os.O_CLOEXEC)
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise StorageError(error.errno, f"{device.path}: {os.strerror(error.errno or 0)}") from None
        by = f" (by {', '.join(device.holders)})" if device.holders else ""
        raise StorageError(
            errno.EBUSY,
            f"{device.path}: it is in use{by}: unmount it, or take it out of what uses it; nothing was written",
        ) from None


def _word(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
