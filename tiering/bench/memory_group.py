"""A memory limit that the kernel enforces on a process: anonymous memory, shared memory and page cache."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tiering.units import parse_size

_ROOT = Path("/sys/fs/cgroup/memory")


@contextmanager
def memory_group(memory: str) -> Iterator[Callable[[], None] | None]:
    """What a new process is to call first, to stay within `memory` and a tenth more.

    ``None`` where no group can be made (it needs root and control groups of version 1) or `memory` is no size.
    """
    size = parse_size(memory, "memory").bytes
    path = _ROOT / f"tiering-bench-{os.getpid()}"
    if size is None or not _make(path, size + size // 10):
        yield None
        return
    try:
        yield lambda: _enter(path)
    finally:
        path.rmdir()


def _make(path: Path, limit: int) -> bool:
    try:
        path.mkdir()
        (path / "memory.limit_in_bytes").write_text(str(limit))
    except OSError:
        if path.is_dir():
            path.rmdir()
        return False
    return True


def _enter(path: Path) -> None:
    (path / "cgroup.procs").write_text(str(os.getpid()))
