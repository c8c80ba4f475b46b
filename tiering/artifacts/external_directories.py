"""Directories outside an output that come and go with it, such as those of stripe files: recorded in its journal.

What a run made outside is removed when the run is undone; what it replaced, when the output is in place; what it needs
only while it works, in both cases. Each holds a file that names its output: nothing else is ever removed.
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
from tiering.artifacts.storage import fsync_directory, make_folders, missing_folders, storage_errors, write_durably
from tiering.errors import FormatError, MissingError

OWNER = "layout"  # file in such a directory that names its output
_TEMPORARY = "temporary "  # prefix of the keys of temporary directories, which count as finished work, unlike others
_STRIPES = re.compile(r"ssd-\d+-of-\d+")


class ExternalDirectories:
    """The directories outside the output `out` that its `journal` records."""

    def __init__(self, journal: Journal, out: Path) -> None:
        self._journal, self._out = journal, out

    def record(self, what: str, folder: Path) -> None:
        """Record, before it is done, what is going to happen to a directory.

        ``make``: it is removed if the run is undone. ``parent``: likewise, if nothing else came into it. ``drop``: it
        is removed when the output is in place.
        """
        key = f"{OUTSIDE}{what} {folder}"
        if self._journal.get(key) is None:
            self._journal.record(key)

    def record_replaced(self, keep: Iterable[Path]) -> None:
        """Record that the stripe files of the layout to be replaced are dropped, except those in `keep`."""
        try:
            external = open_manifest(self._out, "layout").external.values()
        except (FormatError, MissingError):
            return
        kept = {os.path.realpath(path) for path in keep}
        for file in external:
            folder = file.path.parent
            ours = re.fullmatch(rf"{re.escape(self._out.name)}\.[0-9a-f]{{12}}", folder.name)
            if ours and os.path.realpath(file.path) not in kept:
                self.record("drop", folder)

    def own(self, folder: Path) -> None:
        """Create a directory and write into it, durably, that it belongs to the output."""
        with storage_errors(folder):
            folder.mkdir(exist_ok=True)
        if not self.owns(folder):
            write_durably(folder / OWNER, os.fsencode(f"{self._out}\n"))
            fsync_directory(folder)
            fsync_directory(folder.parent)

    def owns(self, folder: Path) -> bool:
        """Return whether a directory belongs to the output."""
        with storage_errors(folder / OWNER):
            try:
                return (folder / OWNER).read_bytes() == os.fsencode(f"{self._out}\n")
            except (FileNotFoundError, NotADirectoryError):
                return False

    def own_temporary(self, folder: Path) -> None:
        """Create a directory that the run needs while it works; remove those of earlier runs with other options."""
        for other in self._recorded(_TEMPORARY):
            if other != folder:
                self._remove_temporary(other)
        for missing in missing_folders(folder.parent):
            self.record("parent", missing)
        if folder not in self._recorded(_TEMPORARY):
            self._journal.record(f"{_TEMPORARY}{folder}")
        with storage_errors(folder):
            make_folders(folder.parent)
        self.own(folder)

    def undo(self) -> None:
        """Remove what the run made outside, the innermost first."""
        for folder in reversed(self._recorded(f"{OUTSIDE}make ")):
            self._remove(folder)
        self._remove_needed()

    def finish(self) -> None:
        """Remove what the output has replaced, and what only the run needed."""
        for folder in self._recorded(f"{OUTSIDE}drop "):
            self._remove(folder)
        self._remove_needed()

    def _recorded(self, prefix: str) -> list[Path]:
        return [Path(key.removeprefix(prefix)) for key in self._journal.keys(prefix)]

    def _remove_needed(self) -> None:
        """Remove temporary directories, then those made for them, or for the output, that are empty."""
        for folder in self._recorded(_TEMPORARY):
            self._remove_temporary(folder)
        for folder in reversed(self._recorded(f"{OUTSIDE}parent ")):
            with suppress(OSError):  # something else came into it
                folder.rmdir()
                fsync_directory(folder.parent)

    def _remove_temporary(self, folder: Path) -> None:
        if self.owns(folder):
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == OWNER):  # which is removed last
                shutil.rmtree(entry, ignore_errors=True)  # a worker that was lost may still write there
            shutil.rmtree(folder, ignore_errors=True)
            fsync_directory(folder.parent)

    def _remove(self, folder: Path) -> None:
        # A kill may come between the directory and the file in it that says whose it is.
        if folder.is_dir() and (self.owns(folder) or {file.name for file in folder.iterdir()} <= {OWNER}):
            for entry in sorted(folder.iterdir(), key=lambda entry: entry.name == OWNER):  # which is removed last
                if entry.name in (OWNER, ".attempts") or _STRIPES.fullmatch(entry.name):  # a user's own file stays
                    shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
            with suppress(OSError):
                folder.rmdir()
            fsync_directory(folder.parent)
