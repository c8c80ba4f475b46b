"""SSD images: files outside the layout's directory, one per SSD directory, that appear together with the layout.

Image k of N is ``DIR/NAME.TOKEN/ssd-k-of-N``, written as ``DIR/.NAME.TOKEN.partial/...`` and renamed right before the
layout itself. NAME is the layout's name; TOKEN comes from its content and place, so that layouts do not meet.

What is made and replaced here is noted in the layout's journal, which clears it away if the run is given up
(`tiering.io.outside`), and knows the blocks that a killed run has finished.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.formats.layout import image_bytes, image_name
from tiering.formats.manifest import External
from tiering.io import outside
from tiering.io.appended import AppendedFile
from tiering.io.journal import Journal
from tiering.io.storage import fsync_directory, storage_errors

_FOLDER = re.compile(r"\.[0-9a-f]{12}$")
_PUBLISHING = "publishing images"
"""Recorded when all images are whole: from here on one that is not under its hidden name has its own."""


def resolve_directories(ssd: Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Absolute paths of the SSD directories; nothing is created.

    Raises
    ------
    InputError
        If two are the same directory, or one is no directory.
    """
    folders = [Path(os.path.realpath(folder)) for folder in ssd]
    for k, folder in enumerate(folders):
        if folder.exists() and not folder.is_dir():
            raise InputError(f"ssd: {ssd[k]}: expected a directory, found a file; give a directory on the SSD")
        for earlier in range(k):
            same = folder == folders[earlier]
            if not same and folder.exists() and folders[earlier].exists():
                same = folder.samefile(folders[earlier])
            if same:
                raise InputError(
                    f"ssd: {ssd[earlier]} and {ssd[k]} are the same directory ({folder}); give each SSD its own"
                )
    return folders


class ImageSet:
    """Images being written, from where an earlier run stopped; a context manager that closes the files.

    Parameters
    ----------
    folders
        One directory per image; created if missing.
    out
        The layout the images belong to. Whoever holds the lock on it may clear away what a killed run left.
    token
        12 hexadecimal digits.
    pages, page_bytes
        Logical pages striped over the images: page p -> image p mod N, offset (p div N) * page_bytes.
    journal
        Of the layout.
    """

    def __init__(
        self, folders: Sequence[Path], out: Path, token: str, pages: int, page_bytes: int, journal: Journal
    ) -> None:
        self._out, self._count, self._page_bytes, self._pages = out, len(folders), page_bytes, pages
        self._journal = journal
        self._final = [folder / f"{out.name}.{token}" for folder in folders]
        self._partial = [folder / f".{out.name}.{token}.partial" for folder in folders]
        self._older = [folder / f".{out.name}.{token}.old" for folder in folders]
        self._files: list[AppendedFile] = []
        with ExitStack() as stack:
            for image, folder in enumerate(folders):
                self._make(folder)
                self._files.append(stack.enter_context(self._open(image)))
            self._close = stack.pop_all().close

    def _make(self, folder: Path) -> None:
        """Create an SSD directory; remove what a run has left in it whose journal is lost."""
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        for each in reversed(missing):
            outside.will_make_parent(self._journal, each)
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        for stale in folder.glob(f".{self._out.name}.*.partial"):
            if stale not in self._partial and outside.claimed(stale, self._out):
                shutil.rmtree(stale, ignore_errors=True)

    def _open(self, image: int) -> AppendedFile:
        folder, published = self._partial[image], self._final[image]
        name, nbytes = f"ssd-{image}-of-{self._count}", image_bytes(self._pages, image, self._count, self._page_bytes)
        if self._journal.get(_PUBLISHING) is not None and published.exists() and not folder.exists():
            folder = published
        else:
            outside.will_make(self._journal, folder)
            with storage_errors(folder):
                folder.mkdir(exist_ok=True)
                outside.claim(folder, self._out)
        return AppendedFile(folder / name, nbytes, self._journal, f"image {name}")

    def first_missing_page(self) -> int:
        """Logical page from which on pages are to be written; those before are there."""
        wanted = [
            file.done // self._page_bytes * self._count + image
            for image, file in enumerate(self._files)
            if file.done < file.nbytes
        ]
        return min(wanted, default=self._pages)

    def write_pages(self, first_page: int, pages: np.ndarray[Any, Any]) -> None:
        """Append consecutive logical pages, uint8 of shape (n, page_bytes); calls follow each other without a gap."""
        for image, file in enumerate(self._files):
            skipped = (image - first_page) % self._count
            own = pages[skipped :: self._count]
            if own.shape[0]:
                file.append((first_page + skipped) // self._count * self._page_bytes, own)

    def publish(self) -> dict[str, External]:
        """Rename the images into place; `External` entries by name. An older layout of the same content makes room."""
        entries = {}
        for image, file in enumerate(self._files):
            path = self._final[image] / file.path.name
            entries[image_name(image)] = External.of(path, file.nbytes, file.digests())
        if self._files:
            self._journal.record(_PUBLISHING)
        for image, folder in enumerate(self._final):
            if self._files[image].path.parent != folder:
                self._rename(image, folder)
        return entries

    def _rename(self, image: int, folder: Path) -> None:
        with storage_errors(folder):
            fsync_directory(self._partial[image])
            if folder.exists():
                shutil.rmtree(self._older[image], ignore_errors=True)
                outside.will_set_aside(self._journal, folder, self._older[image])
                folder.rename(self._older[image])
            outside.will_make(self._journal, folder)
            self._partial[image].rename(folder)
            fsync_directory(folder.parent)

    def __enter__(self) -> ImageSet:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        self._close()


def drop_images(externals: Sequence[External], name: str, keep: Sequence[Path], journal: Journal) -> None:
    """Note that the images of a layout that is replaced are to go with it, but for those in `keep`."""
    kept = {os.path.realpath(path) for path in keep}
    for external in externals:
        folder = external.path.parent
        ours = folder.name.startswith(f"{name}.") and _FOLDER.search(folder.name)
        if ours and os.path.realpath(external.path) not in kept:
            outside.will_drop(journal, folder)
