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
    """Whether a directory belongs to an output."""
    with storage_errors(folder / OWNER):
        try:
            return (folder / OWNER).read_text() == f"{out}\n"
        except (FileNotFoundError, NotADirectoryError):
            return False


def will_make(journal: Journal, folder: Path) -> None:
    """Record, before it is there, a directory that goes if the run is given up."""
    _record(journal, "make", folder)


def will_make_parent(journal: Journal, folder: Path) -> None:
    """Record a directory around others; it goes if the run is given up and nothing else came into it."""
    _record(journal, "parent", folder)


def will_drop(journal: Journal, folder: Path) -> None:
    """Record a directory that goes when the output is in place."""
    _record(journal, "drop", folder)


def _record(journal: Journal, what: str, folder: Path) -> None:
    key = f"{OUTSIDE}{what} {folder}"
    if journal.get(key) is None:
        journal.record(key)


def give_up(journal: Journal, out: Path) -> None:
    """Undo what a run did outside, the last first."""
    for key in reversed(journal.keys(OUTSIDE)):
        what, _, name = key.removeprefix(OUTSIDE).partition(" ")
        folder = Path(name)
        if what == "make":
            _remove(folder, out)
        elif what == "parent":
            with suppress(OSError):  # something else came into it
                folder.rmdir()
                fsync_directory(folder.parent)


def finish(journal: Journal, out: Path) -> None:
    """Remove what the output has replaced."""
    for key in journal.keys(OUTSIDE):
        what, _, name = key.removeprefix(OUTSIDE).partition(" ")
        if what == "drop":
            _remove(Path(name), out)


def _remove(folder: Path, out: Path) -> None:
    # A kill may come between the directory and the file in it that says whose it is.
    if folder.is_dir() and (claimed(folder, out) or {each.name for each in folder.iterdir()} <= {OWNER}):
        shutil.rmtree(folder)
        fsync_directory(folder.parent)
