"""SSD images: files outside the layout's directory, one per SSD directory, that appear together with the layout.

Image k of N is ``DIR/NAME.TOKEN/ssd-k-of-N``, written as ``DIR/.NAME.TOKEN.partial/...`` and renamed right before the
layout itself. NAME is the layout's name; TOKEN comes from its content and place, so that layouts do not meet.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from tiering.errors import InputError
from tiering.formats.layout import image_bytes, image_name
from tiering.formats.manifest import External
from tiering.io.storage import RawWriter, fsync_directory, storage_errors

_OWNER = "layout"
"""File beside an image that names the layout it was written for."""
_FOLDER = re.compile(r"\.[0-9a-f]{12}$")


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
    """Images being written; a context manager that removes everything unless `publish` was called.

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
    """

    def __init__(self, folders: Sequence[Path], out: Path, token: str, pages: int, page_bytes: int) -> None:
        self._out, self._count, self._page_bytes = out, len(folders), page_bytes
        self._created: list[Path] = []
        self._final = [folder / f"{out.name}.{token}" for folder in folders]
        self._partial = [folder / f".{out.name}.{token}.partial" for folder in folders]
        self._older = [folder / f".{out.name}.{token}.old" for folder in folders]
        self._writers: list[RawWriter] = []
        self._published = 0
        try:
            for k, folder in enumerate(folders):
                self._make(folder)
                self._writers.append(self._begin(k, image_bytes(pages, k, self._count, page_bytes)))
        except BaseException:
            self._discard()
            raise

    def _make(self, folder: Path) -> None:
        missing = [each for each in (folder, *folder.parents) if not each.exists()]
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self._created += missing
        for stale in folder.glob(f".{self._out.name}.*.partial"):
            if self._owned(stale):
                shutil.rmtree(stale, ignore_errors=True)

    def _owned(self, folder: Path) -> bool:
        try:
            return (folder / _OWNER).read_text() == f"{self._out}\n"
        except OSError:
            return False

    def _begin(self, image: int, nbytes: int) -> RawWriter:
        folder = self._partial[image]
        with storage_errors(folder):
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            (folder / _OWNER).write_text(f"{self._out}\n")
        return RawWriter(folder / f"ssd-{image}-of-{self._count}", nbytes)

    def write_pages(self, first_page: int, pages: np.ndarray[Any, Any]) -> None:
        """Append consecutive logical pages, uint8 of shape (n, page_bytes); calls follow each other without a gap."""
        for image, writer in enumerate(self._writers):
            own = pages[(image - first_page) % self._count :: self._count]
            if own.shape[0]:
                writer.write(np.ascontiguousarray(own))

    def publish(self) -> dict[str, External]:
        """Close the images and rename them into place; `External` entries by name."""
        entries = {}
        for image, writer in enumerate(self._writers):
            path = self._final[image] / writer.path.name
            entries[image_name(image)] = External(path, writer.nbytes, writer.close())
        for image, folder in enumerate(self._final):
            with storage_errors(folder):
                fsync_directory(self._partial[image])
                shutil.rmtree(self._older[image], ignore_errors=True)
                if folder.exists():
                    folder.rename(self._older[image])  # the same layout written once more
                self._partial[image].rename(folder)
                self._published = image + 1
                fsync_directory(folder.parent)
        return entries

    def keep(self) -> None:
        """The layout is in place: drop what it replaced."""
        for folder in self._older:
            shutil.rmtree(folder, ignore_errors=True)
        self._published, self._writers, self._created = 0, [], []

    def _discard(self) -> None:
        for writer in self._writers:
            writer.__exit__(None, None, None)
        for folder in self._partial:
            shutil.rmtree(folder, ignore_errors=True)
        for image in range(self._published):
            shutil.rmtree(self._final[image], ignore_errors=True)
        for image, older in enumerate(self._older):
            if older.exists() and not self._final[image].exists():
                older.rename(self._final[image])
        for folder in sorted(self._created, key=lambda each: -len(each.parts)):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()

    def __enter__(self) -> ImageSet:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if self._writers:
            self._discard()


def remove_images(externals: Sequence[External], name: str, keep: Sequence[Path]) -> None:
    """Remove the images of a layout that was replaced, but for those in `keep`."""
    kept = {os.path.realpath(path) for path in keep}
    for external in externals:
        folder = external.path.parent
        ours = folder.name.startswith(f"{name}.") and _FOLDER.search(folder.name)
        if ours and os.path.realpath(external.path) not in kept:
            shutil.rmtree(folder, ignore_errors=True)
