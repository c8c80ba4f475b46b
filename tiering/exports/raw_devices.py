"""SSD images of a layout on raw block devices, without a file system.

An image is the stripe already (page p on image p mod N, at page p div N), so that device k gets image k byte by byte,
from its first byte on.
"""

from __future__ import annotations

import errno
import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from threading import Event

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.direct_io import aligned_bytes, write_all
from tiering.artifacts.storage import fsync_directory, make_folders, storage_errors
from tiering.errors import CapabilityError, FormatError, InputError, StorageError
from tiering.exports.block_devices import LOOK, READ, WRITE, BlockDevice, contents_of, describe_device, opened
from tiering.formats.layout import Layout, image_name, page_sums
from tiering.formats.raw_devices import RECORD, RawDevice, RawExport
from tiering.progress import progress
from tiering.units import format_bytes

_PIECE = 8 << 20
"""Bytes that are copied, or read back, at a time."""


def predict_devices(
    layout: Layout, devices: Sequence[str | os.PathLike[str]], overwrite: Sequence[str | os.PathLike[str]] = ()
) -> RawExport:
    """What `write_devices` would write, and what lies there; it refuses what that would refuse.

    Cost: some reads of each device; nothing is written.
    """
    export, found, twice = _planned(layout, devices, overwrite)
    with opened(found, LOOK) as fds:
        return _examined(export, found, twice, fds)


def write_devices(
    layout: Layout,
    devices: Sequence[str | os.PathLike[str]],
    *,
    overwrite: Sequence[str | os.PathLike[str]] = (),
    record: str | os.PathLike[str] | None = None,
) -> RawExport:
    """Write the SSD images of a layout onto block devices, and read all of it back.

    Parameters
    ----------
    layout
        Its images have to be whole: every page is compared with its checksum before it is written.
    devices
        One for each image, in their order: page p of the layout lies on device p mod N, at byte (p div N) * page size.
        What lay there is lost.
    overwrite
        Devices that may be written although a partition table or a file system lies on them: each has to be named
        twice.
    record
        Directory for ``raw-devices.json``, which says what lies where, once all of it does; ``None``: none is written.

    Raises
    ------
    InputError
        If something is no block device, comes twice, is too small, or its blocks do not divide a page; or if something
        lies on it that `overwrite` does not name twice.
    StorageError
        If a device is mounted or otherwise in use, which nothing overrides, is read-only, or fails.
    FormatError
        If a page of an image is damaged, or a device does not give back what was written.

    Notes
    -----
    Cost: every image is read once, every device written once and read once, side by side. A run that was stopped left
    part of an image; the same call writes it again.
    """
    export, found, twice = _planned(layout, devices, overwrite)
    with opened(found, WRITE) as fds:
        export = _examined(export, found, twice, fds)
        images = _Images(layout, export)
        place = None if record is None else _cleared(Path(record))
        images.each(fds, "writing", images.write)
        images.each(fds, "reading back", images.compare)
    if place is not None:
        _put(place, json.dumps(export.to_json(), indent=1) + "\n")
    return export


def check_devices(layout: Layout, devices: Sequence[str | os.PathLike[str]]) -> RawExport:
    """Compare block devices with the checksums of a layout's pages; `FormatError` for the first page that differs.

    Cost: every device is read once, as far as it holds an image; nothing is written.
    """
    export, found = _described(layout, devices)
    with opened(found, READ) as fds:
        images = _Images(layout, export)
        images.each(fds, "comparing", images.compare)
    return export


def _cleared(folder: Path) -> Path:
    """Where the record goes; one of before is removed, because what it tells of is about to change."""
    place = folder / RECORD
    with storage_errors(place):
        make_folders(folder)
        place.unlink(missing_ok=True)
        fsync_directory(folder)
    return place


def _put(place: Path, text: str) -> None:
    partial = place.with_name(f".{place.name}.partial")
    with storage_errors(place, len(text)):
        with partial.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(place)
        fsync_directory(place.parent)


def _described(layout: Layout, devices: Sequence[str | os.PathLike[str]]) -> tuple[RawExport, list[BlockDevice]]:
    """The devices, of which each has room for its image."""
    images, page_bytes = layout.num_images, layout.page_bytes
    if len(devices) != images or not images:
        raise InputError(
            f"devices: expected one for each of the {images} ssd images of {layout.path}, found {len(devices)}; "
            f"`tiering layout` with so many --ssd stripes rows over another number"
        )
    found = [describe_device(Path(device)) for device in devices]
    for number, times in Counter(device.number for device in found).items():
        if times > 1:
            same = [str(device.path) for device in found if device.number == number]
            raise InputError(f"devices: {' and '.join(same)} are one device ({number}); each holds one image")
    rows = []
    for k, device in enumerate(found):
        image = layout.manifest.external[image_name(k)]
        if device.bytes < image.bytes:
            raise InputError(
                f"{device.path}: expected at least {image.bytes} bytes ({format_bytes(image.bytes)}) for ssd image {k} "
                f"of {layout.path}, found {device.bytes}; use a larger device, or more of them"
            )
        if page_bytes % device.block_bytes:
            raise InputError(
                f"{device.path}: expected logical blocks that divide a page of {page_bytes} bytes, found "
                f"{device.block_bytes}; make the layout with --page {device.block_bytes}"
            )
        rows.append(RawDevice(k, device.name, device.model, device.bytes, image.bytes, image.digest, ""))
    return RawExport(str(layout.path), layout.digest, page_bytes, tuple(rows)), found


def _planned(
    layout: Layout, devices: Sequence[str | os.PathLike[str]], overwrite: Sequence[str | os.PathLike[str]]
) -> tuple[RawExport, list[BlockDevice], set[str]]:
    """The devices, of which each can be written, and the numbers of those that `overwrite` names twice."""
    export, found = _described(layout, devices)
    named = Counter(describe_device(Path(device)).number for device in overwrite)
    for number in named:
        if number not in {device.number for device in found}:
            raise InputError("overwrite: expected some of the devices that are written, found another one")
    for device in found:
        if device.read_only:
            raise StorageError(errno.EROFS, f"{device.path}: it is read-only; nothing was written")
    return export, found, {number for number, times in named.items() if times > 1}


def _examined(export: RawExport, found: Sequence[BlockDevice], twice: set[str], fds: Sequence[int]) -> RawExport:
    """With what lies on the devices, all open alone, so that it stays; what may not be lost is refused."""
    rows = []
    for row, device, fd in zip(export.devices, found, fds, strict=True):
        content = contents_of(device, fd)
        if content and device.number not in twice:
            raise InputError(
                f"{device.path}: expected a device with nothing on it, found {content}; nothing was written. If that "
                f"may be lost, name the device twice: --overwrite {device.path} --overwrite {device.path}"
            )
        rows.append(replace(row, found=content))
    return replace(export, devices=tuple(rows))


class _Images:
    """The images of a layout on their way to devices."""

    def __init__(self, layout: Layout, export: RawExport) -> None:
        self._layout, self._export, self._given_up = layout, export, Event()
        self._sums: list[npt.NDArray[np.uint32]] = []
        for name in map(page_sums, range(layout.num_images)):
            if name not in layout.manifest.files:
                raise CapabilityError(
                    f"{layout.path}: it has no checksums of pages, because it was made by an earlier version; "
                    "make the layout again"
                )
            layout.manifest.verifier(name).finish()
            self._sums.append(layout.manifest.array(name))

    def each(self, fds: Sequence[int], what: str, work: Callable[[int, int, Callable[[int], object]], None]) -> None:
        """Do the same with all images, side by side; once one fails, or Ctrl-C is pressed, the others end too."""
        total = sum(row.bytes for row in self._export.devices)
        with progress(total, what, "B", scale=True) as bar, ThreadPoolExecutor(max(1, len(fds))) as pool:
            try:
                for one in as_completed([pool.submit(work, k, fd, bar.update) for k, fd in enumerate(fds)]):
                    one.result()
            except BaseException:
                self._given_up.set()
                raise

    def write(self, image: int, fd: int, told: Callable[[int], object]) -> None:
        """Copy an image onto its device."""
        row, place = self._export.devices[image], self._layout.image_places[image]
        with storage_errors(self._layout.images[image]), place.open("rb", buffering=0) as source:
            for at, piece in self._pieces(row.bytes):
                _read_all(source.fileno(), piece, at, str(self._layout.images[image]))
                self._expect(image, at, piece, f"{self._layout.images[image]}: ", "make the layout again")
                with storage_errors(Path(row.device)):
                    write_all(fd, piece, at)
                told(piece.size)
        with storage_errors(Path(row.device)):
            os.fsync(fd)

    def compare(self, image: int, fd: int, told: Callable[[int], object]) -> None:
        """Compare a device with the checksums of its image."""
        row = self._export.devices[image]
        for at, piece in self._pieces(row.bytes):
            with storage_errors(Path(row.device)):
                _read_all(fd, piece, at, row.device)
            self._expect(
                image, at, piece, f"{row.device}: ", "write the devices again; if that happens again, replace it"
            )
            told(piece.size)

    def _pieces(self, nbytes: int) -> Iterator[tuple[int, npt.NDArray[np.uint8]]]:
        """Where each piece begins, and memory for it; none any more once the work is given up."""
        step = max(_PIECE, self._export.page_bytes)
        memory = aligned_bytes(min(step, nbytes))
        for at in range(0, nbytes, step):
            if self._given_up.is_set():
                return
            yield at, memory[: min(step, nbytes - at)]

    def _expect(self, image: int, at: int, piece: npt.NDArray[np.uint8], where: str, advice: str) -> None:
        page_bytes = self._export.page_bytes
        first = at // page_bytes
        found = native.page_hashes(piece, page_bytes)
        wrong = np.flatnonzero(found != self._sums[image][first : first + found.size])
        if wrong.size:
            page = first + int(wrong[0])
            raise FormatError(
                f"{where}page {page} (from byte {page * page_bytes} on) of ssd image {image} of {self._layout.path} is "
                f"damaged: its content is not what its checksum says; {advice}"
            )


def _read_all(fd: int, into: npt.NDArray[np.uint8], offset: int, name: str) -> None:
    view = into.data
    while len(view):
        done = os.preadv(fd, [view], offset)
        if done == 0:
            raise StorageError(errno.EIO, f"{name}: ends at byte {offset}, but more was expected")
        view, offset = view[done:], offset + done
