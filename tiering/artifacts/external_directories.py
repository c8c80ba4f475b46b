"""Directories outside an output that come and go with it, such as those of SSD images: recorded in its journal.

What a run made outside goes when the run is given up; what it replaced goes when the output is in place; what it needs
only while it works goes in both cases. Each such directory holds a file that names its output: nothing else is ever
removed. Removals are on disk before the journal that knew of them goes.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tiering.artifacts.document import open_manifest
from tiering.artifacts.journal import OUTSIDE, Journal
from tiering.artifacts.storage import fsync_directory, make_folders, missing_folders, storage_errors
from tiering.errors import FormatError, MissingError

OWNER = "layout"
"""File in such a directory that names its output."""
_TEMPORARY = "temporary "
"""What keys of temporary directories begin with: they are finished work, unlike other notes on what lies outside."""
_STRIPES = re.compile(r"ssd-\d+-of-\d+")


def claim(folder: Path, out: Path) -> None:
    """Create a directory and write into it, durably, which output it belongs to."""
    folder.mkdir(exist_ok=True)
    if claimed(folder, out):
        return
    with (folder / OWNER).open("wb") as file:
        file.write(os.fsencode(f"{out}\n"))
        file.flush()
        os.fsync(file.fileno())
    fsync_directory(folder)
    fsync_directory(folder.parent)


def claimed(folder: Path, out: Path) -> bool:
    with storage_errors(folder / OWNER):
        try:
            return (folder / OWNER).read_bytes() == os.fsencode(f"{out}\n")
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


def record_replaced(out: Path, keep: Iterable[Path], journal: Journal) -> None:
    """Record that the stripe files of a layout at `out` go when the output is in place, except those in `keep`."""
    try:
        manifest = open_manifest(out, "layout")
    except (FormatError, MissingError):
        return
    kept = {os.path.realpath(path) for path in keep}
    for external in manifest.external.values():
        folder = external.path.parent
        ours = re.fullmatch(rf"{re.escape(out.name)}\.[0-9a-f]{{12}}", folder.name)
        if ours and os.path.realpath(external.path) not in kept:
            will("drop", journal, folder)


def claim_temporary(folder: Path, out: Path, journal: Journal) -> None:
    """Create a directory that a run needs while it works; those of earlier runs with other options are removed.

    It holds finished work: it stays for the next run where the unfinished output does.
    """
    for other in _temporary(journal):
        if other != folder:
            _remove_temporary(other, out)
    for missing in missing_folders(folder.parent):
        will("parent", journal, missing)
    if folder not in _temporary(journal):
        journal.record(f"{_TEMPORARY}{folder}")
    with storage_errors(folder):
        make_folders(folder.parent)
        claim(folder, out)


def _temporary(journal: Journal) -> list[Path]:
    return [Path(key.removeprefix(_TEMPORARY)) for key in journal.keys(_TEMPORARY)]


def give_up(journal: Journal, out: Path) -> None:
    """Undo what a run did outside, the innermost first."""
    for folder in reversed(_recorded(journal, "make")):
        _remove(folder, out)
    _remove_needed(journal, out)


def finish(journal: Journal, out: Path) -> None:
    """Remove what the output has replaced, and what only the run needed."""
    for folder in _recorded(journal, "drop"):
        _remove(folder, out)
    _remove_needed(journal, out)


def _remove_needed(journal: Journal, out: Path) -> None:
    """Remove temporary directories, then those made for them, or for the output, that are empty."""
    for folder in _temporary(journal):
        _remove_temporary(folder, out)
    for folder in reversed(_recorded(journal, "parent")):
        with suppress(OSError):  # something else came into it
            folder.rmdir()
            fsync_directory(folder.parent)


def _remove_temporary(folder: Path, out: Path) -> None:
    if claimed(folder, out):
        for entry in folder.iterdir():
            if entry.name != OWNER:  # which goes last, in case of a kill
                shutil.rmtree(entry, ignore_errors=True)  # a worker that was lost may still write there
        shutil.rmtree(folder, ignore_errors=True)
        fsync_directory(folder.parent)


def _remove(folder: Path, out: Path) -> None:
    # A kill may come between the directory and the file in it that says whose it is.
    if folder.is_dir() and (claimed(folder, out) or {file.name for file in folder.iterdir()} <= {OWNER}):
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == OWNER):  # which goes last
            if entry.name in (OWNER, ".attempts") or _STRIPES.fullmatch(entry.name):  # a user's own file stays
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        with suppress(OSError):
            folder.rmdir()
        fsync_directory(folder.parent)
