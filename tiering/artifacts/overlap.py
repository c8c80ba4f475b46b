"""Refusal of paths of one command that overlap: its output, its inputs, and other directories it writes to."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from tiering.artifacts.document import MANIFEST
from tiering.artifacts.replaceable import own_files
from tiering.errors import InputError


def refuse_overlap(
    out: Path, reads: Iterable[Path], writes: Iterable[Path] = (), around: Iterable[tuple[Path, str]] = ()
) -> None:
    """Refuse an output that would change or be changed by other files of the same command.

    Parameters
    ----------
    out
        Directory or file to create. It may not lie in, be, or hold any of `reads` and `writes`, nor be or hold the
        working directory or any of `around`, nor lie in any artifact. Its hidden neighbours (``.OUT.partial``) count
        as `out`.
    reads
        Files and directories that the command reads.
    writes
        Directories for other outputs, such as those of stripe files. They may hold `reads`, but not lie in them,
        nor in any artifact.
    around
        Directories that may hold `out`, and for the message what the command does with each.

    Raises
    ------
    InputError
        Names both paths. Symbolic links and bind mounts are followed; nothing is written.
    """
    own = [out, *(out.parent / f".{out.name}.{suffix}" for suffix in ("partial", "old", "lock"))]
    for path, what in ((Path.cwd(), "is the working directory"), *around):
        if lies_in(path, *own):
            raise InputError(f"{out}: expected a path apart from {path}, which {what}; choose another --out")
    read, written = tuple(reads), tuple(writes)
    for path, what in (*((path, "reads") for path in read), *((path, "writes to") for path in written)):
        if lies_in(path, *own) or lies_in(out, path):
            raise InputError(
                f"{out}: expected a path apart from {path}, which the command {what}; choose another --out"
            )
    for path in written:
        for source in read:
            if lies_in(path, source):
                raise InputError(f"{path}: lies in {source}, which the command reads; choose another directory")
    for path in (out, *written):
        for folder in Path(os.path.realpath(path)).parents:
            if own_files(folder)(MANIFEST):
                raise InputError(f"{path}: lies in the artifact {folder}, which would change; choose another directory")


def lies_in(path: Path, *folders: Path) -> bool:
    """Return whether `path` is one of `folders` or lies in one, under any name; none need exist."""
    mounts = _mounts()
    around = {(system, parent) for system, place in _places(path, mounts) for parent in (place, *place.parents)}
    parents = [parent for system, parent in around if not system]
    same = any(_is_same(parent, folder) for folder in folders for parent in parents)
    return same or any(not around.isdisjoint(_places(folder, mounts)) for folder in folders)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def _mounts() -> dict[Path, tuple[str, str]]:
    """Return, by mount point, the file system and which of its directories is mounted."""
    try:
        lines = os.fsdecode(Path("/proc/self/mountinfo").read_bytes()).split("\n")[:-1]
    except OSError:
        return {}
    columns = (line.split()[2:5] for line in lines)
    return {Path(_unescaped(place)): (system, _unescaped(root)) for system, root, place in columns}


def _places(path: Path, mounts: dict[Path, tuple[str, str]]) -> set[tuple[str, Path]]:
    """Return the resolved path, and the path within its file system, which all bind mounts of it have in common."""
    path = Path(os.path.realpath(path))
    point = next((parent for parent in (path, *path.parents) if parent in mounts), None)
    if point is None:
        return {("", path)}
    system, root = mounts[point]
    return {("", path), (system, Path(root) / path.relative_to(point))}


def _unescaped(text: str) -> str:
    """Return a path of ``mountinfo``, which writes blanks and backslashes in octal."""
    return re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), text)
