"""Stripe files (images): files outside the layout's directory, one per SSD, that appear together with the layout.

File k of N is ``DIR/NAME.TOKEN/ssd-k-of-N``, written in ``DIR/.NAME.PLAN.partial`` and renamed right before the layout
itself. PLAN is a digest of the plan, TOKEN one of content and place: files of one name have the same bytes. The
layout's journal lists the directories made here, removed if the run is given up, and the blocks that are finished.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from tiering import native
from tiering.artifacts.atomic import ExternalDirectories
from tiering.artifacts.checksum import DIGEST_BYTES, combine_digests, digest_bytes, num_blocks
from tiering.artifacts.file_writer import FileWriter, block_key
from tiering.artifacts.journal import Journal
from tiering.artifacts.manifest import External
from tiering.artifacts.storage import fsync_directory, make_folders, missing_folders, storage_errors
from tiering.formats.layout import SUM_BYTES, image_name
from tiering.layout.plan import LayoutPlan

_PUBLISHING = "publishing images"
"""Key of the journal, with the token, once all files are whole: from then on they are renamed."""


def append_striped(files: Sequence[FileWriter], first: int, items: np.ndarray[Any, Any]) -> None:
    """Append consecutive items, rows or pages from number `first` on; item i of N files goes to file i mod N."""
    for number, file in enumerate(files):
        skipped = (number - first) % len(files)
        own = items[skipped :: len(files)]
        if own.shape[0]:
            file.append(own, (first + skipped) // len(files) * own[0].nbytes)


def first_missing(files: Sequence[FileWriter], item_bytes: int, end: int) -> int:
    """Return the first item that is not on disk; `end` if all are."""
    missing = (file.done // item_bytes * len(files) + k for k, file in enumerate(files) if file.done < file.nbytes)
    return min(missing, default=end)


class StripeFiles(ExitStack):
    """A writer of the stripe files, a context manager that closes them; it goes on where an earlier run stopped.

    Logical page p goes to file p mod N, offset (p div N) * page_bytes. `out` is the layout, whose lock allows to remove
    the files of a killed run; `digest` are 12 hexadecimal digits that stand for the layout and its path.
    """

    def __init__(self, plan: LayoutPlan, out: Path, digest: str, journal: Journal) -> None:
        super().__init__()
        self._out, self._digest, self._journal, self._folders = out, digest, journal, plan.folders
        self._sizes, self._pages, self._page_bytes = plan.stripe_bytes, plan.pages, plan.page_bytes
        self._partial = [folder / f".{out.name}.{digest}.partial" for folder in plan.folders]
        self.sums: Sequence[FileWriter] = ()  # files of the checksums of each file's pages, in the layout's directory
        self._external = ExternalDirectories(journal, out)
        self._files: list[FileWriter] = []
        for folder in plan.folders:
            self._make_folder(folder)
        self.paths = [self._own_file(number) for number in range(len(plan.folders))]

    def open(self) -> None:
        """Open the files, to write their missing parts."""
        for number, path in enumerate(self.paths):
            file = FileWriter(path, self._sizes[number], self._journal, self._key(number))
            self._files.append(self.enter_context(file))

    def _key(self, number: int) -> str:
        return f"image {self.paths[number].name}"

    def is_whole(self, number: int) -> bool:
        """Return whether a run has taken over a file by `take`, undamaged; called before `open`."""
        key, size, path = self._key(number), self._sizes[number], self.paths[number]
        if not path.is_file() or len(self._journal.keys(block_key(key))) < num_blocks(size):
            return False
        with FileWriter(path, size, self._journal, key) as file:
            return not file.missing()

    def take(self, number: int, at: str, digests: bytes) -> None:
        """Take over a file that a task wrote at the path `at` next to it; called before `open`."""
        path = self.paths[number]
        with storage_errors(path):
            (path.parent / at).replace(path)
            fsync_directory(path.parent)
        for block in range(num_blocks(self._sizes[number])):
            digest = digests[block * DIGEST_BYTES : (block + 1) * DIGEST_BYTES]
            self._journal.record(f"{block_key(self._key(number))}{block}", digest=digest.hex())

    def _make_folder(self, folder: Path) -> None:
        """Create an SSD directory; remove the files in it of a run whose journal is lost."""
        for missing in missing_folders(folder):
            self._external.record("parent", missing)
        with storage_errors(folder):
            make_folders(folder)
        for stale in folder.glob(f".{self._out.name}.*.partial"):
            if stale not in self._partial and self._external.owns(stale):
                shutil.rmtree(stale, ignore_errors=True)

    def _own_file(self, number: int) -> Path:
        """Return the path at which a file is or was written; own its directory."""
        folder, published = self._partial[number], self._journal.get(_PUBLISHING)
        name = f"ssd-{number}-of-{len(self._folders)}"
        home = folder if published is None else self._home(number, published["token"])
        if (home / name).exists() and not (folder / name).exists():
            folder = home
        else:
            self._external.record("make", folder)
            self._external.own(folder)
        return folder / name

    def _home(self, number: int, token: str) -> Path:
        """Return the directory in which a file gets its name."""
        return self._folders[number] / f"{self._out.name}.{token}"

    def first_missing_page(self) -> int:
        """Return the first logical page that is not on disk."""
        files = ((self._files, self._page_bytes), (self.sums, SUM_BYTES))
        return min(self._pages, *(first_missing(*some, self._pages) for some in files))

    def write_pages(self, first_page: int, pages: np.ndarray[Any, Any]) -> None:
        """Append consecutive logical pages, uint8 of shape (n, page_bytes), to those of the last call."""
        append_striped(self._files, first_page, pages)
        sums = native.page_hashes(np.ascontiguousarray(pages).reshape(-1), self._page_bytes)
        append_striped(self.sums, first_page, sums.astype("<u4", copy=False))

    def publish(self) -> dict[str, External]:
        """Rename the files into place, where they replace equal ones; return their `External` entries by name."""
        digests = [file.digests() for file in self._files]
        content = [self._digest, *map(combine_digests, digests), *map(str, self._folders)]
        token = digest_bytes(os.fsencode("\n".join(content))).rpartition(":")[2][:12]
        if self._files:
            self._journal.record(_PUBLISHING, token=token)
        entries = {}
        for number, file in enumerate(self._files):
            home, path = self._home(number, token), file.path
            with storage_errors(home):
                if path.parent != home:
                    if not home.exists():
                        self._external.record("make", home)
                    self._external.own(home)
                    path.replace(home / path.name)
                fsync_directory(home)
                if self._partial[number].exists():
                    shutil.rmtree(self._partial[number])
                fsync_directory(home.parent)
            entries[image_name(number)] = External.of(home / path.name, file.nbytes, digests[number])
        return entries
