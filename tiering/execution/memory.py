"""How much memory there is, and how much this process holds: what the system says, in bytes.

Page cache counts as free everywhere here: it gives way when memory is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_UNLIMITED = 1 << 60
"""Limits of a control group above this are none."""


def own_memory() -> int:
    """Anonymous and shared memory that this process holds now (``RssAnon`` + ``RssShmem``)."""
    return sum(_kibibytes(Path("/proc/self/status"), ("RssAnon", "RssShmem"))) * 1024


def total_memory() -> int:
    """Memory this process may use: that of the machine, or less where a control group limits it."""
    return min([_machine("MemTotal"), *(limit for limit, _ in _groups())])


def available_memory() -> int:
    """Memory that may still be taken: what the machine has left, or less where a control group limits it."""
    return max(0, min([_machine("MemAvailable"), *(limit - held for limit, held in _groups())]))


def _machine(name: str) -> int:
    found = list(_kibibytes(Path("/proc/meminfo"), (name,)))
    return found[0] * 1024 if found else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _kibibytes(file: Path, names: tuple[str, ...]) -> Iterator[int]:
    """Values of lines such as ``MemTotal:  1024 kB``."""
    if not file.exists():
        return
    for line in file.read_text().splitlines():
        name, _, rest = line.partition(":")
        if name in names:
            yield int(rest.split()[0])


def _groups() -> Iterator[tuple[int, int]]:
    """Limit, and anonymous and shared memory held, of every control group above this process that has a limit."""
    for controllers, path in _memberships():
        one = "memory" in controllers
        if not one and controllers:
            continue
        root = Path("/sys/fs/cgroup/memory" if one else "/sys/fs/cgroup")
        # In a container the path may be the host's, which is not there: then the mount itself is the group.
        place = next((each for each in (root / path.lstrip("/"), root) if each.is_dir()), None)
        while place is not None and (place == root or root in place.parents):
            if (limit := _number(place / ("memory.limit_in_bytes" if one else "memory.max"))) is not None:
                yield limit, _held(place, one)
            place = place.parent


def _memberships() -> Iterator[tuple[list[str], str]]:
    """Controllers (none: the unified hierarchy) and path of each group this process is in."""
    file = Path("/proc/self/cgroup")
    for line in file.read_text().splitlines() if file.exists() else ():
        _, controllers, path = line.split(":", 2)
        yield [name for name in controllers.split(",") if name], path


def _number(file: Path) -> int | None:
    try:
        text = file.read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() and int(text) < _UNLIMITED else None


def _held(place: Path, one: bool) -> int:
    names = ("total_rss", "total_shmem") if one else ("anon", "shmem")
    try:
        lines = (place / "memory.stat").read_text().splitlines()
    except OSError:
        return 0
    values = dict(line.split() for line in lines)
    return sum(int(values.get(name, 0)) for name in names)
