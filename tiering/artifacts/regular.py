"""Checks of a user's paths: a regular file, nothing, or something else, which is refused before it is opened."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from tiering.errors import InputError, MissingError

_KINDS = {
    stat.S_IFDIR: ("a directory", "check the path, or move the directory away"),
    stat.S_IFIFO: ("a pipe", "save what comes through it in a file first"),
    stat.S_IFSOCK: ("a socket", "save what comes through it in a file first"),
    stat.S_IFCHR: ("a device", "save what it holds in a file first"),
    stat.S_IFBLK: ("a device", "save what it holds in a file first"),
}


def name_kind(mode: int) -> str:
    """Return what a file that is no regular one is called in messages."""
    return _KINDS[stat.S_IFMT(mode)][0]


def file_exists(path: Path, what: str) -> bool:
    """Return whether there is a regular file at `path`, links followed; ``False`` only where there is nothing.

    Anything else is refused by `InputError`; `what` says what the file should hold.
    """
    mode = _mode(path, f"{what}, a regular file")
    if mode is None:
        return False
    if not stat.S_ISREG(mode):
        advice = _KINDS[stat.S_IFMT(mode)][1]
        raise InputError(f"{path}: expected {what}, a regular file, found {name_kind(mode)}; {advice}")
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise InputError(f"{path}: expected {what}, a regular file, found one that may not be read; give permission")
    return True


def require_file(path: Path, what: str) -> Path:
    """Return `path` if there is a regular file at it; `MissingError` if there is nothing."""
    if not file_exists(path, what):
        raise MissingError(f"{path}: expected {what}, found nothing; check the path")
    return path


def is_folder(path: Path, what: str = "a directory") -> bool:
    """Return whether there is a directory at `path`; `InputError` for a link that leads nowhere."""
    mode = _mode(path, what)
    return mode is not None and stat.S_ISDIR(mode)


def entries(folder: Path) -> list[Path]:
    """Return the paths directly inside a directory, by name; `InputError` if it may not be read."""
    try:
        return sorted(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder}: expected a directory to read, found: {error.strerror}; check it") from error


def _mode(path: Path, what: str) -> int | None:
    """Return the mode of the file at `path`, links followed; ``None`` for nothing."""
    try:
        return path.stat().st_mode
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            if not os.path.lexists(path):
                return None
            loop = error.errno == errno.ELOOP
            target = "in a circle" if loop else f"to {path.readlink()}, which does not exist"
            raise InputError(
                f"{path}: expected {what}, found a symbolic link {target}; put back what it should lead to, "
                "or remove the link"
            ) from error
        raise InputError(f"{path}: expected {what}, found: {error.strerror}; check the path") from error
