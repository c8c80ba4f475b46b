"""A memory limit that the kernel enforces on processes: anonymous memory, shared memory and page cache.

A control group, of version 1 or 2, whichever the system has. Making one needs root or a delegated group.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tiering.errors import CapabilityError

MOUNT = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class MemoryGroup:
    """A control group that limits memory."""

    path: Path
    unified: bool
    """Whether the group is of version 2."""

    def enter(self) -> None:
        """Move this process into the group: what a new process does first (``preexec_fn``)."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def failures(self) -> int:
        """Return how often the limit was hit; the page cache gives way then, so it says nothing bad by itself."""
        if not self.unified:
            return int((self.path / "memory.failcnt").read_text())
        events = dict(line.split() for line in (self.path / "memory.events").read_text().splitlines())
        return int(events["max"])


@contextmanager
def memory_group(limit: int, mount: Path = MOUNT, own: Path = Path("/proc/self/cgroup")) -> Iterator[MemoryGroup]:
    """Open a group of at most `limit` bytes, without swap, removed at the end; `CapabilityError` if that fails."""
    reasons = []
    for parent, unified in _parents(mount, own):
        path = parent / f"tiering-{os.getpid()}"
        try:
            _make(path, limit, unified)
        except OSError as error:
            reasons.append(f"{path}: {error.strerror}")
            with suppress(OSError):
                path.rmdir()
            continue
        try:
            yield MemoryGroup(path, unified)
        finally:
            path.rmdir()
        return
    raise CapabilityError(f"no memory control group can be made here: {'; '.join(reasons) or 'no hierarchy of them'}")


def _parents(mount: Path, own: Path) -> Iterator[tuple[Path, bool]]:
    """Yield groups below which one may be made: of version 1 the root; of version 2 ours, and those above it."""
    if (mount / "memory" / "memory.limit_in_bytes").exists():
        yield mount / "memory", False
    lines = own.read_text().splitlines() if own.exists() else []
    for path in (line.removeprefix("0::") for line in lines if line.startswith("0::")):
        group = mount / path.lstrip("/")
        for parent in (group, *group.parents):
            if (parent / "cgroup.controllers").exists():
                yield parent, True


def _make(path: Path, limit: int, unified: bool) -> None:
    if not unified:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(limit))
        return
    control = path.parent / "cgroup.subtree_control"
    if "memory" not in control.read_text().split():
        control.write_text("+memory")  # refused in a group that has processes: the next one up is tried
    path.mkdir()
    (path / "memory.max").write_text(str(limit))
    with suppress(OSError):  # not there without swap
        (path / "memory.swap.max").write_text("0")
