"""Who serves NVMe queues: controllers made of software, or drives that are bound to BaM's module."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tiering import native
from tiering.artifacts.storage import core_errors
from tiering.errors import CapabilityError, InputError
from tiering.formats.layout import Layout, image_name
from tiering.formats.raw_devices import RawExport
from tiering.loader.options import ReadOptions


def queue_server(layout: Layout, reading: ReadOptions) -> Any:
    """What serves queues that a GPU submits to; ``None`` with engines that read without any."""
    if reading.engine == "softnvme":
        return native.softnvme_server()
    drives = open_drives(layout, reading)
    return None if drives is None else drives.server()


def open_drives(layout: Layout, reading: ReadOptions) -> Any:
    """Drives that hold the images of a layout, the core's ``BamDrives``; ``None`` with any engine but ``bam``.

    A drive is taken over, which resets it, by the first who wants it in this process, and given back by the last. What
    can be refused before that is.
    """
    if reading.engine != "bam":
        return None
    make = getattr(native, "BamDrives", None)
    if make is None:
        raise CapabilityError(
            "engine bam: this build has none; install it from the sources with "
            "`pip install -C cmake.define.TIERING_BAM_ROOT=CHECKOUT .` (docs/gpu-ssd.md), or use engine='softnvme'"
        )
    if len(reading.drives) != layout.num_images:
        raise InputError(
            f"drives: expected one for each of {layout.num_images} ssd images, such as /dev/libnvm0, in their order, "
            f"found {len(reading.drives)}"
        )
    record = None if reading.raw_devices is None else _record(layout, Path(reading.raw_devices))
    with core_errors():
        drives = make(list(reading.drives))
    _check(layout, reading.drives, drives.infos, record)
    return drives


def _record(layout: Layout, path: Path) -> RawExport:
    """What the export says it wrote, which has to be this layout."""
    record = RawExport.read(path)
    if record.digest != layout.digest or [device.image for device in record.devices] != list(range(layout.num_images)):
        raise InputError(
            f"raw_devices: expected an export of {layout.path} ({layout.digest}, {layout.num_images} ssd images), "
            f"found one of {record.layout} ({record.digest}, {len(record.devices)} ssd images); export the layout again"
        )
    return record


def _check(layout: Layout, names: Sequence[str], infos: Sequence[Any], record: RawExport | None) -> None:
    """Raise `InputError` unless each drive has room for its image and is the one that the export wrote."""
    for k, (name, info) in enumerate(zip(names, infos, strict=True)):
        needed, found = layout.manifest.external[image_name(k)].bytes, int(info.bytes)
        if found < needed:
            raise InputError(
                f"{name}: expected a namespace of at least {needed} bytes for ssd image {k} of {layout.path}, found "
                f"{found}; give the drives in the order of the images"
            )
        if record is None:
            continue
        device = record.devices[k]
        known = not device.model or device.model.endswith(info.serial)
        if found != device.device_bytes or not known:
            raise InputError(
                f"{name}: expected the drive that holds ssd image {k} of {layout.path}, "
                f"{device.model or device.device}, of {device.device_bytes} bytes, found {info.model} {info.serial} "
                f"of {found}; give the drives in the order of the images"
            )
