"""Disks to plan with: by name with the figures that their makers publish, or from a file of measured ones."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tiering.artifacts.storage import ALIGNMENT, storage_errors
from tiering.errors import FormatError, InputError
from tiering.readahead.disk_speed import DiskSpeed, read_speed

_SEVERAL = re.compile(r"^(\d+)x(.+)$")
_MOST_DRIVES = 64
_SLACK = 2  # factor by which figures of a disk may disagree
_MOST_IN_FLIGHT = 1 << 16


@dataclass(frozen=True)
class Disk:
    """One or several drives with rows striped over them; `speed` is the speed of all together."""

    name: str
    speed: DiskSpeed
    drives: int = 1
    device: str = ""  # source of the figures, for people


def read_toml(path: Path) -> dict[str, Any]:
    """Return the document of a TOML file."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    with storage_errors(path):
        text = path.read_bytes()
    try:
        return dict(toml.loads(text.decode()))
    except ValueError as error:
        raise FormatError(f"{path}: expected TOML ({' '.join(str(error).split())})") from None


@cache
def known_disks() -> Mapping[str, Disk]:
    """Return the disks that the package knows, by name."""
    return {
        name: Disk(
            name, DiskSpeed(**{key: value for key, value in entry.items() if key != "device"}), 1, entry["device"]
        )
        for name, entry in read_toml(Path(__file__).with_name("disks.toml")).items()
    }


def find_disk(text: str | Path) -> Disk:
    """Return the disk of a name, of several (``2xnvme-gen4``), or of a file as `read_speed` reads it."""
    several = _SEVERAL.match(str(text))
    drives, name = (int(several[1]), several[2]) if several else (1, str(text))
    if not 1 <= drives <= _MOST_DRIVES:
        raise InputError(f"disk: expected 1 to {_MOST_DRIVES} drives, found {text}")
    disk = known_disks().get(name)
    if disk is None:
        if not Path(name).is_file():
            known = ", ".join(known_disks())
            raise InputError(f"disk: expected measured, a file of figures, or one of {known}; found {name!r}")
        disk = Disk(name, check_units(read_speed(Path(name)), name), 1, "figures of the file")
    speed = DiskSpeed(disk.speed.reads_per_second * drives, disk.speed.bytes_per_second * drives, disk.speed.latency)
    return Disk(str(text), speed, drives, disk.device)


def check_units(speed: DiskSpeed, where: str) -> DiskSpeed:
    """Return the figures of a disk if they agree with each other; `InputError` where one has another unit."""
    reads, nbytes, latency = speed.reads_per_second, speed.bytes_per_second, speed.latency
    if nbytes * _SLACK < reads * ALIGNMENT:
        raise InputError(
            f"{where}: bytes_per_second: expected at least the {reads * ALIGNMENT:.3g} of {reads:,.0f} reads/s of "
            f"4 KiB, found {nbytes:g}; give bytes, not GB (3.5 GB/s is 3.5e9), and reads, not thousands of reads"
        )
    if latency is not None and not 1 / _SLACK <= reads * latency <= _MOST_IN_FLIGHT:
        raise InputError(
            f"{where}: latency: expected the seconds of one read, such as 80e-6, found {latency:g} at {reads:,.0f} "
            f"reads/s, which means {reads * latency:.3g} reads in flight; correct the unit of one of the two"
        )
    return speed
