"""Directories outside an output that come and go with it, such as those of SSD images: recorded in its journal.

What a run made outside goes when the run is given up; what it replaced goes when the output is in place. Each such
directory holds a file that names its output: nothing else is ever removed.
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

from tiering.io.journal import OUTSIDE, Journal

OWNER = "layout"
"""File in such a directory that names its output."""


def claim(folder: Path, out: Path) -> None:
    """Write into a directory which output it belongs to."""
    (folder / OWNER).write_text(f"{out}\n")


def claimed(folder: Path, out: Path) -> bool:
    """Whether a directory belongs to an output."""
    try:
        return (folder / OWNER).read_text() == f"{out}\n"
    except OSError:
        return False


def will_make(journal: Journal, folder: Path) -> None:
    """Record, before it is there, a directory that goes if the run is given up."""
    _record(journal, "make", folder)


def will_make_parent(journal: Journal, folder: Path) -> None:
    """Record a directory around others; it goes if the run is given up and nothing else came into it."""
    _record(journal, "parent", folder)


def will_set_aside(journal: Journal, home: Path, aside: Path) -> None:
    """Record that `home` will be renamed to `aside`: comes back if the run is given up, goes when it has ended."""
    _record(journal, "aside", aside, home=str(home))


def will_drop(journal: Journal, folder: Path) -> None:
    """Record a directory that goes when the output is in place."""
    _record(journal, "drop", folder)


def _record(journal: Journal, what: str, folder: Path, **facts: str) -> None:
    key = f"{OUTSIDE}{what} {folder}"
    if journal.get(key) is None:
        journal.record(key, **facts)


def give_up(journal: Journal, out: Path) -> None:
    """Undo what a run did outside, the last first."""
    for key in reversed(journal.keys(OUTSIDE)):
        what, _, name = key.removeprefix(OUTSIDE).partition(" ")
        folder, facts = Path(name), journal.get(key) or {}
        with suppress(OSError):
            if what == "make":
                _remove(folder, out)
            elif what == "aside" and folder.exists():
                if Path(facts["home"]).exists():
                    _remove(folder, out)
                else:
                    folder.rename(facts["home"])
            elif what == "parent":
                folder.rmdir()


def finish(journal: Journal, out: Path) -> None:
    """Remove what the output has replaced."""
    for key in journal.keys(OUTSIDE):
        what, _, name = key.removeprefix(OUTSIDE).partition(" ")
        if what in ("aside", "drop"):
            _remove(Path(name), out)


def _remove(folder: Path, out: Path) -> None:
    if claimed(folder, out):
        shutil.rmtree(folder, ignore_errors=True)
    elif folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()  # a kill between the directory and its first file
