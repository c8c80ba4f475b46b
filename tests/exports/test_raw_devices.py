"""SSD images on block devices: loop devices stand for drives."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jsonschema import Draft202012Validator

import tiering
from tiering.artifacts.checksum import checksum_file
from tiering.cli.main import main
from tiering.errors import FormatError, InputError, StorageError
from tiering.exports import block_devices, check_devices, predict_devices, raw_devices, write_devices
from tiering.exports.block_devices import LOOK, BlockDevice, describe_device, opened
from tiering.loader.options import ReadOptions
from tiering.loader.ssd import make_table, open_reader

SIZE = 4 << 20


def _run(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def drive(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """Makes loop devices, with random bytes on them."""
    if os.geteuid() != 0 or shutil.which("losetup") is None or shutil.which("blkid") is None:
        pytest.skip("loop devices want root, losetup and blkid")
    made: list[str] = []

    def make(size: int = SIZE, *options: str) -> Path:
        backing = tmp_path / f"drive-{len(made)}"
        backing.write_bytes(np.random.default_rng(len(made)).bytes(size))
        try:
            made.append(_run("losetup", "--find", "--show", *options, str(backing)))
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no loop device is to be had: {error.stderr.strip()}")
        return Path(made[-1])

    yield make
    for device in made:
        _run("losetup", "--detach", device)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Two images, of which some pages lie in neither memory tier; rows run through page ends or not."""
    folder = tmp_path_factory.mktemp("striped")
    tiering.generate_dataset(folder / "data", nodes=1500, edges=6000, dim=300, classes=4, seed=0)
    graph = tiering.import_graph(folder / "data", folder / "graph")
    scores = tiering.score_graph(graph, folder / "scores", method="degree")
    reordered = tiering.reorder_graph(graph, scores, folder / "reordered")
    return tiering.write_layout(reordered, folder / "layout", cpu="10%", ssd=[folder / "a", folder / "b"]).artifact


def content(device: Path, nbytes: int) -> bytes:
    with device.open("rb") as file:
        return file.read(nbytes)


def test_devices_hold_the_stripe(layout, drive, tmp_path, repository):
    devices = [drive(), drive()]
    made = write_devices(layout, devices, record=tmp_path / "record")
    (name,) = layout.feature_types
    entry = layout.type_layout(name)
    pages, page = entry.ssd_rows.num_pages, layout.page_bytes
    assert pages > 3
    for p in range(pages):  # page p on device p mod N, at page p div N
        image = layout.images[p % 2].read_bytes()[p // 2 * page :][:page]
        with devices[p % 2].open("rb") as file:
            assert os.pread(file.fileno(), page, p // 2 * page) == image
    record = json.loads((tmp_path / "record" / "raw-devices.json").read_text())
    assert record == json.loads(json.dumps(made.to_json()))
    assert [d["bytes"] for d in record["devices"]] == [path.stat().st_size for path in layout.images]
    schema = json.loads((repository / "data_specs" / "schemas" / "raw-devices.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    Draft202012Validator(schema).validate(record)
    for row, device in zip(record["devices"], devices, strict=True):  # the record alone says what is there
        (tmp_path / "copy").write_bytes(content(device, row["bytes"]))
        assert row["checksum"] == checksum_file(tmp_path / "copy")
    assert check_devices(layout, devices) == made
    reader = open_reader(devices, page, ReadOptions())  # and rows are read from there
    rows = np.arange(entry.rows("ssd"))
    found = np.empty((rows.size, entry.row_bytes), np.uint8)
    make_table(layout, entry, reader, None).gather(rows, found, 1)
    first = entry.ranges["ssd"][0]
    expected = tiering.open(layout.path).features().gather_numpy(rows + first).view(np.uint8)
    np.testing.assert_array_equal(found, expected.reshape(found.shape))


def test_a_flipped_bit_is_found(layout, drive):
    devices = [drive(), drive()]
    write_devices(layout, devices)
    with devices[1].open("r+b") as file:
        file.seek(layout.page_bytes + 77)
        byte = file.read(1)[0]
        file.seek(layout.page_bytes + 77)
        file.write(bytes([byte ^ 4]))
    with pytest.raises(FormatError, match=rf"{devices[1]}: page 1 \(from byte {layout.page_bytes} on\) of ssd image 1"):
        check_devices(layout, devices)
    write_devices(layout, devices)
    check_devices(layout, devices)


def test_a_damaged_image_is_not_written(layout, drive):
    devices = [drive(), drive()]
    image = layout.images[0]
    whole = image.read_bytes()
    try:
        image.write_bytes(b"\x01" + whole[1:])
        with pytest.raises(FormatError, match=r"ssd-0-of-2: page 0 .* make the layout again"):
            write_devices(layout, devices)
    finally:
        image.write_bytes(whole)


def test_a_dry_run_writes_nothing(layout, drive, capsys):
    devices = [drive(), drive()]
    before = [content(device, SIZE) for device in devices]
    options = [option for device in devices for option in ("--device", str(device))]
    assert main(["export", str(layout.path), "--to", "raw", *options, "--dry-run", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["state"] == "would be written"
    assert [d["device_bytes"] for d in shown["devices"]] == [SIZE, SIZE]
    assert [content(device, SIZE) for device in devices] == before
    assert main(["export", str(layout.path), "--to", "raw", *options, "--out", str(layout.path.parent / "rec")]) == 0
    assert "written and read back" in capsys.readouterr().out
    assert main(["export", str(layout.path), "--to", "raw", *options, "--check"]) == 0


def lay_ext4(device: Path) -> None:
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4")
    _run("mkfs.ext4", "-q", str(device))


def lay_mbr(device: Path) -> None:
    """A partition table with one partition."""
    entry = bytes([0, 0, 2, 0, 0x83, 0, 0, 0]) + (2048).to_bytes(4, "little") + (2048).to_bytes(4, "little")
    with device.open("r+b") as file:
        file.write(bytes(446) + entry + bytes(48) + b"\x55\xaa")


def lay_swap(device: Path) -> None:
    if shutil.which("mkswap") is None:
        pytest.skip("there is no mkswap")
    _run("mkswap", str(device))


@pytest.mark.parametrize(
    ("lay", "words"), [(lay_ext4, "filesystem"), (lay_mbr, "a partition table"), (lay_swap, "other")]
)
def test_what_lies_there_has_to_be_named_twice(layout, drive, lay, words):
    devices = [drive(), drive()]
    lay(devices[1])
    before = content(devices[1], SIZE)
    for named in ([], [devices[1]]):
        with pytest.raises(InputError, match=rf"{devices[1]}: expected a device with nothing on it, found {words}"):
            write_devices(layout, devices, overwrite=named)
    assert content(devices[1], SIZE) == before
    assert words in predict_devices(layout, devices, [devices[1]] * 2).devices[1].found
    write_devices(layout, devices, overwrite=[devices[1]] * 2)
    check_devices(layout, devices)


@contextmanager
def mounted(device: Path, place: Path) -> Iterator[None]:
    place.mkdir()
    try:
        _run("mount", str(device), str(place))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"nothing can be mounted here: {error.stderr.strip()}")
    try:
        yield
    finally:
        _run("umount", str(place))


def test_a_device_in_use_is_never_written(layout, drive, tmp_path):
    devices = [drive(), drive()]
    lay_ext4(devices[0])
    before = content(devices[1], SIZE)
    with mounted(devices[0], tmp_path / "mount"):
        for named in ([], [devices[0]] * 2):  # nobody is told to name it twice, and it does not help
            for work in (write_devices, predict_devices):
                words = rf"{devices[0]}: it is in use \(mounted at {tmp_path}/mount\)"
                with pytest.raises(StorageError, match=words):
                    work(layout, devices, overwrite=named)
    assert content(devices[1], SIZE) == before
    with opened([describe_device(devices[1])], LOOK), pytest.raises(StorageError, match=f"{devices[1]}: it is in use"):
        write_devices(layout, devices, overwrite=[devices[0]] * 2)


def test_a_partition_in_use_keeps_its_drive(layout, drive, tmp_path):
    if shutil.which("partx") is None:
        pytest.skip("there is no partx")
    one, other = drive(4 * SIZE, "--sector-size", "4096"), drive()
    lay_mbr(one)
    try:
        _run("partx", "--add", "--nr", "1:1", str(one))
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no partition is to be had: {error.stderr.strip()}")
    part = Path(f"{one}p1")
    try:
        assert describe_device(part).block_bytes == 4096 and describe_device(part).bytes == 2 * SIZE
        with pytest.raises(InputError, match=f"found the partitions {part.name}"):
            predict_devices(layout, [one, other])
        with opened([describe_device(part)], LOOK), pytest.raises(StorageError, match=f"{one}: it is in use"):
            write_devices(layout, [one, other], overwrite=[one, one])
        lay_ext4(part)
        with (
            mounted(part, tmp_path / "mount"),
            pytest.raises(StorageError, match=rf"{one}: it is in use \(mounted at {tmp_path}/mount\)"),
        ):
            write_devices(layout, [one, other], overwrite=[one, one])
    finally:
        _run("partx", "--delete", str(one))


def test_a_drive_that_cannot_be_read_is_not_taken_for_an_empty_one(layout, drive, tmp_path):
    devices = [drive(), drive()]
    os.truncate(tmp_path / "drive-1", 0)  # what backs the second one
    with pytest.raises(StorageError, match=f"{devices[1]}: Input/output error"):
        predict_devices(layout, devices)


def test_signatures_of_several_kinds(layout, drive):
    one, other = drive(), drive()
    lay_ext4(one)
    with one.open("r+b") as file:
        file.seek(0x10040)
        file.write(b"_BHRfS_M")  # btrfs
    with pytest.raises(InputError, match="found signatures of several kinds"):
        predict_devices(layout, [one, other])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), OSError(errno.EIO, "Input/output error")])
def test_all_drives_stop_with_the_first_that_fails(layout, drive, tmp_path, monkeypatch, error):
    devices = [drive(), drive()]
    write_devices(layout, devices, record=tmp_path)
    calls: list[int] = []
    other_is_writing = threading.Event()

    def failing(fd: int, data: Any, offset: int) -> None:
        calls.append(offset)
        if Path(f"/proc/self/fd/{fd}").readlink() == devices[1]:
            other_is_writing.wait(10)
            raise error
        other_is_writing.set()
        time.sleep(0.1)  # that the failure comes first

    monkeypatch.setattr(raw_devices, "write_all", failing)
    monkeypatch.setattr(raw_devices, "_PIECE", layout.page_bytes)
    with pytest.raises((KeyboardInterrupt, StorageError)):
        write_devices(layout, devices, record=tmp_path)
    assert len(calls) <= 4 < sum(path.stat().st_size for path in layout.images) // layout.page_bytes
    assert not (tmp_path / "raw-devices.json").exists()  # what it told is true no more


def test_names_of_what_is_written_over_are_not_kept(tmp_path, monkeypatch):
    for name in ("lvm-pv-uuid-1", "nvme-model-serial"):
        (tmp_path / name).symlink_to("/dev/null")
    monkeypatch.setattr(block_devices, "_BY_ID", tmp_path)
    device = BlockDevice(Path("/dev/null"), "1:3", 0, 512, False, "", (), ())
    assert device.name == str(tmp_path / "nvme-model-serial")
    (tmp_path / "nvme-model-serial").unlink()
    assert device.name == "/dev/null"


def test_devices_that_do_not_fit(layout, drive, tmp_path):
    one, other = drive(), drive()
    small, wide, read_only = drive(8192), drive(SIZE, "--sector-size", "4096"), drive(SIZE, "--read-only")
    plain = tmp_path / "plain"
    plain.write_bytes(bytes(SIZE))
    for devices, words in (
        ([one], "expected one for each of the 2 ssd images"),
        ([one, one], "are one device"),
        ([one, plain], "plain: expected a block device"),
        ([small, other], rf"{small}: expected at least \d+ bytes .* found 8192"),
    ):
        with pytest.raises(InputError, match=words):
            write_devices(layout, devices)
    with pytest.raises(StorageError, match="it is read-only; nothing was written"):
        write_devices(layout, [one, read_only])
    with pytest.raises(InputError, match="overwrite: expected some of the devices that are written"):
        write_devices(layout, [one, other], overwrite=[small, small])
    assert layout.page_bytes == 4096
    write_devices(layout, [one, wide])  # blocks of a page


def test_arguments_that_make_no_sense(layout, tmp_path, capsys):
    path = str(layout.path)
    for arguments, words in (
        (["--to", "pyg", "--device", "/dev/null"], "device: expected --to raw"),
        (["--to", "raw", "--check"], "go with --device"),
        (["--to", "raw"], "out: expected a directory"),
        (["--to", "raw", "--device", "/dev/null", "--force"], "named by --overwrite"),
        (["--to", "raw", "--device", "/dev/null", "--check", "--dry-run"], "--check writes nothing"),
        (["--to", "raw", "--device", "/dev/null", "--device", str(tmp_path)], "expected a block device"),
    ):
        assert main(["export", path, *arguments]) != 0
        assert words in capsys.readouterr().err
    assert main(["export", str(layout.graph.path), "--to", "raw", "--device", "/dev/null"]) != 0
    assert "expected a layout" in capsys.readouterr().err
