"""Memory: how much there is, how much this process holds, and the budget that a stage stays within, all in bytes.

Page cache counts as free everywhere here: it gives way when memory is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from tiering.errors import BudgetError, InputError
from tiering.units import format_bytes, parse_size

AUTO_SHARE = 0.8
"""Share of the memory available that ``auto`` takes."""
_SLACK = 8 << 20
"""Bytes by which what a process holds differs from run to run: what is advised has room for them."""
FLOOR = 40 << 20
"""Bytes that a command holds, as measured, before it knows what its input needs."""
FLOORS = {
    **dict.fromkeys(("import", "generate", "datasets", "run"), 64 << 20),
    "trace": 192 << 20,
    "reading .pt files": 224 << 20,
}
"""The same of commands that load more: pyarrow, or torch."""
_UNLIMITED = 1 << 60
"""Limits of a control group above this are none."""


@dataclass(frozen=True)
class Budget:
    """What a stage may take of anonymous and shared memory: a limit for the process, less what it held at the begin.

    Page cache, and with it every file that is mapped, does not count: it gives way. A budget is a value: what a stage
    comes to hold on the way is taken off by `without`, and the rest handed down.
    """

    limit: int
    text: str
    held: int = 0
    """Bytes that this process held when the stage began."""
    taken: int = 0
    """Bytes that the stage has taken since, or keeps for something else."""
    expected: int = 0
    """Bytes that the stage takes at its peak, as far as is known: no less is advised."""

    def without(self, nbytes: int) -> Budget:
        """What remains beside `nbytes` that are, or will be, taken."""
        return replace(self, taken=self.taken + nbytes)

    def expecting(self, nbytes: int) -> Budget:
        """The same where it is known that later on the work will need so many bytes."""
        return replace(self, expected=nbytes)

    def left(self) -> int:
        """Bytes that may still be taken."""
        return max(0, self.limit - self.held - self.taken)

    def require(self, needed: int, what: str) -> None:
        """Raise `BudgetError` unless `needed` more bytes are left; `what` says for the message what needs them."""
        if self.held + self.taken + needed <= self.limit:
            return
        beside = f"{format_bytes(self.held)} held already"
        if self.taken > 0:
            beside += f" and {format_bytes(self.taken)} for other things"
        raise BudgetError(
            f"memory: {what} need {format_bytes(needed)} beside the {beside}, found "
            f"{self.text} ({format_bytes(self.limit)}); give --memory {self.advised(needed)} or more"
        )

    def advised(self, needed: int) -> str:
        """The memory to ask for where `needed` more bytes are, such as ``84MiB``."""
        whole = self.held + max(self.taken + needed, self.expected) + _SLACK
        return f"{-(-whole // (1 << 20))}MiB"


def parse_memory(memory: str | int | Budget | None, held: int | None = None) -> Budget:
    """The budget of a stage that begins now: ``8GiB``, ``50%`` of the machine's memory, or ``auto`` (also ``None``).

    ``auto`` is 80 % of what is available now. Both shares respect the limit of a control group (container). A budget
    is returned as it is. `InputError` for anything else, and for 0. `held`: what is held now, where it is not this
    process alone that the budget is for.
    """
    if isinstance(memory, Budget):
        return memory
    size, held = parse_size("auto" if memory is None else memory, "memory"), own_memory() if held is None else held
    if size.bytes is not None:
        limit = size.bytes
    elif size.fraction is not None:
        limit = int(size.fraction * total_memory())
    else:
        limit = held + int(AUTO_SHARE * available_memory())
    if limit <= 0:
        raise InputError(f"memory: expected more than nothing, such as 8GiB, 50% or auto, found {size.text!r}")
    return Budget(limit, size.text, held)


def require_floor(command: str) -> None:
    """Raise `BudgetError`, before it loads them, if the modules of a command do not fit what this process may hold."""
    needed = FLOORS.get(command, FLOOR)
    try:
        room = own_memory() + available_memory()
    except OSError:  # no descriptor is left for a look; the command itself raises the soft limit
        return
    if room < needed:
        raise BudgetError(
            f"memory: {command}: expected at least {format_bytes(needed)}, which its modules and the interpreter take, "
            f"found {format_bytes(room)}; raise the limit of the container (control group), or free memory"
        )


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
    sizes = list(_kibibytes(Path("/proc/meminfo"), (name,)))
    return sizes[0] * 1024 if sizes else os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


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
        place = next((folder for folder in (root / path.lstrip("/"), root) if folder.is_dir()), None)
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
