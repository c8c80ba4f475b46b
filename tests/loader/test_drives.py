"""Drives for ``engine="bam"``: which are refused, and when. What libnvm would say of them is made up here."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tiering import native
from tiering.errors import FormatError, InputError, StorageError
from tiering.formats.layout import image_name
from tiering.formats.raw_devices import RECORD, RawDevice, RawExport
from tiering.loader.drives import open_drives
from tiering.loader.options import ReadOptions

NAMES = ["/dev/libnvm0", "/dev/libnvm1"]
BYTES = 1 << 30


class Shelf:
    """Drives by their paths, and which were taken over."""

    def __init__(self) -> None:
        self.drives = {
            name: SimpleNamespace(model="Disk 9", serial=f"S{k}", bytes=BYTES, most_read=1 << 17)
            for k, name in enumerate(NAMES)
        }
        self.taken: list[str] = []

    def take(self, paths: Sequence[str]) -> Any:
        self.taken += paths
        return SimpleNamespace(infos=[self.drives[path] for path in paths])


@pytest.fixture
def shelf(monkeypatch: pytest.MonkeyPatch) -> Shelf:
    shelf = Shelf()
    monkeypatch.setattr(native, "BamDrives", shelf.take, raising=False)
    return shelf


@pytest.fixture
def layout(kit: Any, build: Any) -> Any:
    nodes = {"node": kit.Nodes(60, kit.random_table(60, 512), "uint8", tiers=(0, 0, 0))}
    return build(kit.Dataset(nodes, page_bytes=4096, images=2)).artifact


@pytest.fixture
def record(layout: Any, tmp_path: Path) -> Callable[..., Path]:
    """Writes what an export of the layout would leave, with some of it changed."""

    def write(**changed: Any) -> Path:
        external = [layout.manifest.external[image_name(k)] for k in range(2)]
        devices = tuple(
            RawDevice(k, f"/dev/disk/by-id/{k}", f"Disk 9 S{k}", BYTES, image.bytes, f"xxh3-64-b64m:{k:016x}", "")
            for k, image in enumerate(external)
        )
        export = replace(RawExport(str(layout.path), layout.digest, layout.page_bytes, devices), **changed)
        path = tmp_path / RECORD
        path.write_text(json.dumps(export.to_json()))
        assert RawExport.read(tmp_path) == RawExport.read(path) == export
        return path

    return write


def refuse(layout: Any, words: str, drives: Sequence[str] = NAMES, **options: Any) -> None:
    with pytest.raises(InputError, match=words):
        open_drives(layout, ReadOptions("bam", drives=drives, **options))


def test_the_drives_of_an_export(layout, shelf, record):
    assert open_drives(layout, ReadOptions("threads", drives=NAMES)) is None
    for raw_devices in (None, record(), str(record().parent)):
        infos = open_drives(layout, ReadOptions("bam", drives=NAMES, raw_devices=raw_devices)).infos
        assert [info.serial for info in infos] == ["S0", "S1"]
    shelf.drives[NAMES[1]].serial = "S7"  # not looked at where the system knew no model
    unnamed = record(devices=tuple(replace(d, model="") for d in RawExport.read(record()).devices))
    open_drives(layout, ReadOptions("bam", drives=NAMES, raw_devices=unnamed))


def test_what_is_wrong_is_said_before_a_drive_is_reset(layout, shelf, record, tmp_path):
    refuse(layout, "drives: expected one for each of 2 ssd images, .* found 1", NAMES[:1])
    other = record(digest="xxh3-128:" + "0" * 32)
    refuse(layout, r"raw_devices: expected an export of .*, found one of .*xxh3-128:0{32}", raw_devices=other)
    fewer = record(devices=RawExport.read(record()).devices[:1])
    refuse(layout, r"raw_devices: .* found one of .* 1 ssd images\)", raw_devices=fewer)
    with pytest.raises(StorageError, match="nowhere"):
        open_drives(layout, ReadOptions("bam", drives=NAMES, raw_devices=tmp_path / "nowhere"))
    for damage in ("{", "[]", json.dumps({**json.loads(record().read_text()), "page_bytes": "4096"})):
        (tmp_path / RECORD).write_text(damage)
        with pytest.raises(FormatError, match=rf"{RECORD}: "):
            open_drives(layout, ReadOptions("bam", drives=NAMES, raw_devices=tmp_path))
    assert shelf.taken == []


def test_drives_that_hold_something_else(layout, shelf, record):
    needed = layout.manifest.external[image_name(1)].bytes
    swapped = rf"{NAMES[1]}: expected the drive that holds ssd image 0 .*, Disk 9 S0, of {BYTES} bytes, found Disk 9 S1"
    refuse(layout, swapped, NAMES[::-1], raw_devices=record())
    open_drives(layout, ReadOptions("bam", drives=NAMES[::-1]))  # nothing tells them apart
    shelf.drives[NAMES[1]].bytes = BYTES - 512  # formatted since
    refuse(layout, rf"{NAMES[1]}: .* of {BYTES} bytes, found Disk 9 S1 of {BYTES - 512}", raw_devices=record())
    shelf.drives[NAMES[1]].bytes = needed - 1
    refuse(layout, rf"{NAMES[1]}: expected a namespace of at least {needed} bytes .*, found {needed - 1}")
