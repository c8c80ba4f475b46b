"""Refusal of outputs: paths of one command that overlap, and directories that ``--force`` must not replace."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from tiering.artifacts.checksum import DIGEST_BYTES, block_digests
from tiering.artifacts.document import KINDS, MANIFEST
from tiering.artifacts.manifest import CHECKSUMS, MOVED, UNREAD
from tiering.errors import ExistsError, InputError

if TYPE_CHECKING:
    from tiering.artifacts.artifact import Artifact

_Test: TypeAlias = Callable[[str], object]
_NONE: _Test = frozenset[str]().__contains__
_OTHERS = {
    "export.json": (b'"tiering.export"', r"export\.json|metadata\.yaml|load\.py|(nodes|relations)/.+\.(npy|bin)"),
    "processed/meta.json": (
        b'"tiering generate"',
        r"processed/(meta\.json|[^/]+/(node_feat|node_label_19|\w+_idx|edge_index)\.npy)",
    ),
}  # outputs that are no artifacts: the file that identifies them, its content, and their paths


def refuse_overlap(
    out: Path, reads: Iterable[Path | Artifact], writes: Iterable[Path] = (), around: Iterable[tuple[Path, str]] = ()
) -> None:
    """Raise `InputError`, naming both paths, if an output would change or be changed by files of the same command.

    `out` may not lie in, be, or hold anything that the command `reads` or `writes` to, nor be or hold the working
    directory or one of `around` (with its use), nor lie in any artifact. `writes` may hold `reads`, not lie in them.
    Of an artifact, what it refers to is read too.
    """
    own = [out, *(out.parent / f".{out.name}.{suffix}" for suffix in ("partial", "old", "lock"))]
    inputs, written = tuple(reads), tuple(writes)
    apart = [(one if isinstance(one, Path) else one.path, "the command reads") for one in inputs]
    apart += [(path, "the command writes to") for path in written]
    artifacts, lies_in = [one for one in inputs if not isinstance(one, Path)], _Names().lies_in
    apart += [(path, f"the input {one.path} refers to") for one in artifacts for path in one.outside()]
    for path, what in ((Path.cwd(), "is the working directory"), *around, *apart):
        if lies_in(path, *own) or ((path, what) in apart and lies_in(out, path)):
            raise InputError(f"{out}: expected a path apart from {path}, which {what}; choose another output")
    for path in written:
        for source, what in apart:
            if what != "the command writes to" and lies_in(path, source):
                raise InputError(f"{path}: lies in {source}, which {what}; choose another directory")
    for path in (out, *written):
        for folder in Path(os.path.realpath(path)).parents:
            if own_files(folder)(MANIFEST):
                raise InputError(f"{path}: lies in the artifact {folder}, which would change; choose another directory")


def lies_in(path: Path, *folders: Path) -> bool:
    """Return whether `path` is one of `folders` or lies in one, under any name; none need exist."""
    return _Names().lies_in(path, *folders)


class _Names:
    """The names of paths, each found once: resolved, within their file systems, and by inode."""

    def __init__(self) -> None:
        mounts = _mounts()
        self._places = cache(lambda path: _places(path, mounts))
        self._inode = cache(_inode)
        self._around = cache(self._find_around)

    def lies_in(self, path: Path, *folders: Path) -> bool:
        around, inodes = self._around(path)
        return any(self._inode(at) in inodes or not around.isdisjoint(self._places(at)) for at in folders)

    def _find_around(self, path: Path) -> tuple[set[tuple[str, Path]], set[tuple[int, int] | None]]:
        names = {(system, parent) for system, place in self._places(path) for parent in (place, *place.parents)}
        return names, {self._inode(parent) for system, parent in names if not system} - {None}


def _inode(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _mounts() -> dict[Path, tuple[str, str, str]]:
    """Return, by mount point, the file system, which of its directories is mounted, and the kind of file system."""
    try:
        text = os.fsdecode(Path("/proc/self/mountinfo").read_bytes())
    except OSError:
        return {}
    rows = []
    for line in text.split("\n")[:-1]:  # blanks and backslashes of paths are written in octal
        names = [*line.split()[2:5], line.partition(" - ")[2].split(maxsplit=1)[0]]
        rows.append([re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), name) for name in names])
    return {Path(place): (system, root, kind) for system, root, place, kind in rows}


def file_system(path: Path) -> str:
    """Return the kind of file system that a path lies on, such as ``ext4`` or ``fuse.s3fs``; empty if unknown."""
    mounts, path = _mounts(), Path(os.path.realpath(path))
    return next((mounts[parent][2] for parent in (path, *path.parents) if parent in mounts), "")


def _places(path: Path, mounts: dict[Path, tuple[str, str, str]]) -> set[tuple[str, Path]]:
    """Return the resolved path, and the path within its file system, which all bind mounts of it have in common."""
    path = Path(os.path.realpath(path))
    point = next((parent for parent in (path, *path.parents) if parent in mounts), None)
    if point is None:
        return {("", path)}
    system, root, _ = mounts[point]
    return {("", path), (system, Path(root) / path.relative_to(point))}


def own_files(folder: Path) -> _Test:
    """Return the test for files that a stage has written in `folder`, by relative path; false for all if none has."""
    data = _content(folder / MANIFEST)
    if data is None:
        found = (paths for name, (mark, paths) in _OTHERS.items() if mark in (_content(folder / name) or b""))
        return re.compile(paths).fullmatch if (paths := next(found, "")) else _NONE
    try:
        document = json.loads(data)
        ours = document["format"] in {f"tiering.{kind}" for kind in KINDS}
        moved = json.loads(_content(folder / MOVED) or b"{}")
        paths_outside = (*moved.values(), *(file["path"] for file in document["external"].values()))
        names = {MANIFEST, UNREAD, MOVED, *document["files"], *paths_outside}
        nested = {part: own_files(folder / part) for part in document["parts"]}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        ours = False
    if not ours:
        return _summed_files(folder)

    def is_own(name: str) -> object:
        part, _, rest = name.partition("/")
        return name in names or (part in nested and nested[part](rest))

    return is_own


def _summed_files(folder: Path) -> _Test:
    """Return the test for files of an artifact whose manifest is damaged: those that its checksums know."""
    digests = _content(folder / CHECKSUMS) or b""
    known = {digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)}
    if not known or len(digests) % DIGEST_BYTES:
        return _NONE

    def is_summed(file: Path) -> bool:
        return file.is_file() and block_digests(file, [0])[0] in known

    def is_own(name: str) -> object:
        if name in (MANIFEST, CHECKSUMS, UNREAD, MOVED):
            return any(map(is_summed, sorted(folder.rglob("*"))))
        part, _, rest = name.partition("/")
        if rest and (folder / part / MANIFEST).is_file():
            return own_files(folder / part)(rest)
        return is_summed(folder / name) or not (folder / name).stat().st_size

    return is_own


def _content(file: Path) -> bytes | None:
    return file.read_bytes() if file.is_file() else None


def refuse_foreign(out: Path, is_own: _Test | None = None) -> None:
    """Raise `ExistsError`, naming the first file at `out` that does not pass `is_own`, by default `own_files`."""
    if not out.is_dir():
        raise ExistsError(
            f"{out}: expected a directory to replace, found a file; move it away, or choose another output"
        )
    is_own = is_own or own_files(out)
    errors: list[OSError] = []
    tree = sorted(os.walk(out, onerror=errors.append))
    if errors:
        raise errors[0]
    for folder, folders, names in tree:
        links = [name for name in folders if Path(folder, name).is_symlink()]
        for name in sorted((*names, *links)):
            file = Path(folder, name)
            if not is_own(file.relative_to(out).as_posix()):
                raise ExistsError(
                    f"{out}: has {file}, which tiering did not write; --force replaces tiering's outputs and empty "
                    "directories: move that file away, or choose another output"
                )
