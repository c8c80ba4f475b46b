"""Memory: available, resident in this process, and the budget of a stage, all in bytes.

Page cache counts as available: it gives way when memory is needed.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tiering.errors import BudgetError, InputError
from tiering.text.units import ask_percent, format_bytes, parse_size

AUTO_SHARE = 0.8  # fraction of the available memory that ``auto`` takes
_SLACK = 8 << 20  # bytes by which resident memory differs from run to run; added to the memory that messages advise
FLOOR = 40 << 20  # resident bytes of a command, as measured, before it knows what its input needs
FLOORS = {
    **dict.fromkeys(("import", "generate", "datasets", "run"), 64 << 20),
    "trace": 192 << 20,
    "reading .pt files": 224 << 20,
}
"""The same for commands that load more: pyarrow, or torch."""
_UNLIMITED = 1 << 60  # a limit of a control group above this is none


@dataclass(frozen=True)
class Budget:
    """A limit on the anonymous and shared memory of this process while a stage runs; a mapped file does not count."""

    limit: int
    text: str  # the limit as the user wrote it
    resident: int = 0  # resident bytes of this process when the stage began
    allocated: int = 0  # bytes that the stage has allocated since, or reserves
    expected: int = 0  # peak memory of the stage in bytes, as far as is known: no less is advised

    def without(self, nbytes: int) -> Budget:
        """Return the budget with `nbytes` more allocated or reserved."""
        return replace(self, allocated=self.allocated + nbytes)

    def expecting(self, nbytes: int) -> Budget:
        """Return the budget with a known peak of `nbytes`."""
        return replace(self, expected=nbytes)

    def left(self) -> int:
        """Return the bytes that may still be allocated."""
        return max(0, self.limit - self.resident - self.allocated)

    def require(self, needed: int, what: str) -> None:
        """Raise `BudgetError` unless `needed` more bytes are left; `what` names in the message what needs them."""
        if self.resident + self.allocated + needed <= self.limit:
            return
        others = f"the {format_bytes(self.resident)} already resident"
        if self.allocated > 0:
            others += f" and {format_bytes(self.allocated)} for other things"
        raise BudgetError(
            f"memory: {what} need {format_bytes(needed)} in addition to {others}, found "
            f"{self.text} ({format_bytes(self.limit)}); give --memory {self.advised(needed)} or more"
            f"{ask_percent(self.text)}"
        )

    def advised(self, needed: int) -> str:
        """Return the memory to advise where `needed` more bytes are wanted, such as ``84MiB``."""
        whole = self.resident + max(self.allocated + needed, self.expected) + _SLACK
        return f"{-(-whole // (1 << 20))}MiB"


def parse_memory(memory: str | int | Budget | None, resident: int | None = None) -> Budget:
    """Return the budget of a stage that begins now: ``8GiB``, ``50%`` of the machine's memory, ``auto`` (or ``None``).

    ``auto`` is 80 % of what is available now. `resident` replaces this process's where several share the budget.
    """
    if isinstance(memory, Budget):
        return memory
    size = parse_size("auto" if memory is None else memory, "memory")
    if resident is None:
        release_unused(collect=False)  # else the figure that a message names would differ from run to run
        resident = own_memory()
    if size.bytes is not None:
        limit = size.bytes
    elif size.fraction is not None:
        limit = int(size.fraction * total_memory())
    else:
        limit = resident + int(AUTO_SHARE * available_memory())
    if limit <= 0:
        raise InputError(f"memory: expected more than 0, such as 8GiB, 50% or auto, found {size.text!r}")
    return Budget(limit, size.text, resident)


def require_floor(command: str) -> None:
    """Raise `BudgetError`, before they are loaded, if a command's modules need more than the available memory."""
    needed, available = FLOORS.get(command, FLOOR), own_memory() + available_memory()
    if available < needed:
        raise BudgetError(
            f"memory: {command}: expected at least {format_bytes(needed)} for its modules and the interpreter, "
            f"found {format_bytes(available)}; raise the limit of the container (control group), or free memory"
        )


def release_unused(*, collect: bool = True) -> None:
    """Give memory that was freed back to the system; `collect` first what only cycles hold.

    Not after each block: a model is nearly twice as fast with messages in memory that glibc has kept.
    """
    if collect:
        gc.collect()
    if (arrow := sys.modules.get("pyarrow")) is not None:
        arrow.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)


def own_memory() -> int:
    """Return the anonymous and shared memory resident in this process now (``RssAnon`` + ``RssShmem``)."""
    return _named_bytes(Path("/proc/self/status"), "RssAnon", "RssShmem")


def proportional_memory() -> int:
    """Return the same, where a page that n processes share counts as its n-th part in each of them."""
    return _named_bytes(Path("/proc/self/smaps_rollup"), "Pss_Anon", "Pss_Shmem") or own_memory()


def total_memory() -> int:
    """Return the memory this process may use: the machine's, or less where a control group limits it."""
    return min([_machine("MemTotal"), *(limit for limit, _ in _groups())])


def available_memory() -> int:
    """Return the memory that may still be allocated, by the machine and the limits of control groups."""
    return max(0, min([_machine("MemAvailable"), *(limit - resident for limit, resident in _groups())]))


def _machine(name: str) -> int:
    return _named_bytes(Path("/proc/meminfo"), name) or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _named_bytes(file: Path, *names: str) -> int:
    """Return the sum of lines such as ``MemTotal:  1024 kB``; 0 if there is no such file."""
    lines = [line.split() for line in _text(file).splitlines()]
    return sum(int(words[1]) * 1024 for words in lines if words and words[0].rstrip(":") in names)


def _text(file: Path) -> str:
    """Return the content of a file of the kernel; none if it cannot be read, as where no descriptor is left."""
    try:
        return file.read_text()
    except OSError:
        return ""


def _groups() -> Iterator[tuple[int, int]]:
    """Yield limit and resident anonymous and shared memory of the control groups with a limit above this process."""
    for line in _text(Path("/proc/self/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)  # no controllers: the unified hierarchy
        one = "memory" in controllers.split(",")
        if not one and controllers:
            continue
        root = Path("/sys/fs/cgroup/memory" if one else "/sys/fs/cgroup")
        # In a container the path may be the host's, which is not there: then the mount itself is the group.
        place = next((folder for folder in (root / path.lstrip("/"), root) if folder.is_dir()), None)
        while place is not None and (place == root or root in place.parents):
            limit = _text(place / ("memory.limit_in_bytes" if one else "memory.max")).strip()
            if limit.isdigit() and int(limit) < _UNLIMITED:
                values = dict(line.split() for line in _text(place / "memory.stat").splitlines())
                names = ("total_rss", "total_shmem") if one else ("anon", "shmem")
                yield int(limit), sum(int(values.get(name, 0)) for name in names)
            place = place.parent
