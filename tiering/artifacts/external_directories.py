"""Directories outside an output that come and go with it, such as those of SSD images: recorded in its journal.

What a run made outside goes when the run is given up; what it replaced goes when the output is in place. Each such
directory holds a file that names its output: nothing else is ever removed. Removals are on disk before the journal that
knew of them goes.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path

from tiering.artifacts.journal import OUTSIDE, Journal
from tiering.artifacts.storage import fsync_directory, storage_errors

OWNER = "layout"
"""File in such a directory that names its output."""


def claim(folder: Path, out: Path) -> None:
    """Create a directory and write into it, durably, which output it belongs to."""
    folder.mkdir(exist_ok=True)
    if claimed(folder, out):
        return
    with (folder / OWNER).open("w") as file:
        file.write(f"{out}\n")
        file.flush()
        os.fsync(file.fileno())
    fsync_directory(folder)
    fsync_directory(folder.parent)


def claimed(folder: Path, out: Path) -> bool:
    with storage_errors(folder / OWNER):
        try:
            return (folder / OWNER).read_text() == f"{out}\n"
        except (FileNotFoundError, NotADirectoryError):
            return False


def will(what: str, journal: Journal, folder: Path) -> None:
    """Record, before it is done, what is going to happen to a directory.

    ``make``: it goes if the run is given up. ``parent``: likewise, if nothing else came into it. ``drop``: it goes when
    the output is in place.
    """
    key = f"{OUTSIDE}{what} {folder}"
    if journal.get(key) is None:
        journal.record(key)


def _recorded(journal: Journal, what: str) -> list[Path]:
    prefix = f"{OUTSIDE}{what} "
    return [Path(key.removeprefix(prefix)) for key in journal.keys(prefix)]


def give_up(journal: Journal, out: Path) -> None:
    """Undo what a run did outside, the innermost first."""
    for folder in reversed(_recorded(journal, "make")):
        _remove(folder, out)
    for folder in reversed(_recorded(journal, "parent")):
        with suppress(OSError):  # something else came into it
            folder.rmdir()
            fsync_directory(folder.parent)


def finish(journal: Journal, out: Path) -> None:
    """Remove what the output has replaced."""
    for folder in _recorded(journal, "drop"):
        _remove(folder, out)


def _remove(folder: Path, out: Path) -> None:
    # A kill may come between the directory and the file in it that says whose it is.
    if folder.is_dir() and (claimed(folder, out) or {file.name for file in folder.iterdir()} <= {OWNER}):
        shutil.rmtree(folder)
        fsync_directory(folder.parent)
