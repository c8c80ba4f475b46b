"""The model of a disk: what it says of reads, where it comes from, where it is kept."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tiering.artifacts.storage import ALIGNMENT
from tiering.errors import FormatError, InputError, StorageError
from tiering.readahead import disk_speed
from tiering.readahead.disk_speed import (
    CACHE,
    DiskSpeed,
    QueueDepth,
    cached_speed,
    large_reads,
    measure,
    measured_speed,
    read_speed,
)


@pytest.fixture
def image(tmp_path):
    """A file of 2.5 MiB in a directory of its own."""
    path = tmp_path / "disk" / "image"
    path.parent.mkdir()
    path.write_bytes(os.urandom(5 << 19))
    return path


@pytest.fixture
def measurements(monkeypatch):
    """What is measured, instead of measuring: the n-th time n reads and n bytes a second."""
    made: list[list[Path]] = []

    def measured(images: Any, seconds: float = 0.0) -> DiskSpeed:
        made.append(list(images))
        return DiskSpeed(len(made), len(made))

    monkeypatch.setattr(disk_speed, "measure", measured)
    return made


def test_reads_take_as_long_as_requests_and_bytes():
    disk = DiskSpeed(1000, 1e10)  # the bytes of a small read take next to nothing
    assert disk.seconds(2000, 0) == pytest.approx(2.0, rel=1e-3)
    assert disk.seconds(0, 2e10) == 2.0
    assert disk.seconds(0, 0) == 0.0
    assert disk.seconds(3000, 4e10) == pytest.approx(7.0, rel=1e-3)
    assert disk.gap == pytest.approx(1e7, rel=1e-3)  # takes a thousandth of a second, as a request does


def test_a_small_read_takes_what_was_measured():
    for disk in (DiskSpeed(100_000, 1e9), DiskSpeed(100_000, 4096 * 100_000)):
        assert disk.seconds(100_000, 4096 * 100_000) == pytest.approx(1.0)
    odd = DiskSpeed(1e6, 1e9)  # reads of 4 KiB came faster than large ones: they cost their bytes
    assert odd.seconds(1, 4096) == 4096 / 1e9 and odd.gap == 0


def test_a_file_says_it(tmp_path):
    path = tmp_path / "disk.json"
    path.write_text('{"reads_per_second": 5, "bytes_per_second": 70.5, "engine": "io_uring"}')
    assert read_speed(path) == DiskSpeed(5.0, 70.5)
    with pytest.raises(StorageError, match=r"none\.json: No such file"):
        read_speed(tmp_path / "none.json")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"3", b"null", b'{"reads_per_second": 5}', b'{"reads_per_second": "x", "bytes_per_second": 1}',
     b'{"reads_per_second": [1], "bytes_per_second": 1}', b"\xff\xfe"],
)  # fmt: skip
def test_a_file_without_the_figures_is_refused(tmp_path, content):
    path = tmp_path / "disk.json"
    path.write_bytes(content)
    with pytest.raises(
        FormatError, match=r"disk\.json: expected a JSON object with numbers reads_per_second and bytes_"
    ):
        read_speed(path)


@pytest.mark.parametrize("figure", ["0", "-1", "NaN", "Infinity"])
@pytest.mark.parametrize("name", ["reads_per_second", "bytes_per_second", "latency"])
def test_figures_that_no_disk_has_are_refused(tmp_path, figure, name):
    path = tmp_path / "disk.json"
    path.write_text(json.dumps({"reads_per_second": 1, "bytes_per_second": 1} | {name: float(figure)}))
    with pytest.raises(InputError, match=r"disk\.json: .*expected finite values above 0, found "):
        read_speed(path)


def test_what_was_measured_is_kept_by_machine_and_device(image, tmp_path, measurements, monkeypatch):
    """On a file system that machines share, their disks of one number are not one disk."""
    monkeypatch.setattr(disk_speed, "boot_id", lambda: "6c1f")
    other = {"6c1f 9:9": {"reads_per_second": 5.0, "bytes_per_second": 6.0}}
    (tmp_path / CACHE).write_text(json.dumps(other))
    first = measured_speed([image], tmp_path)
    number = image.stat().st_dev
    key = f"6c1f {os.major(number)}:{os.minor(number)}"
    assert json.loads((tmp_path / CACHE).read_text()) == {
        **other, key: {"reads_per_second": 1, "bytes_per_second": 1}
    }  # fmt: skip
    assert measured_speed([image, image], tmp_path) == first == DiskSpeed(1, 1)
    assert measurements == [[image]]
    monkeypatch.setattr(disk_speed, "boot_id", lambda: "09ab")
    assert measured_speed([image], tmp_path) == measured_speed([image], tmp_path) == DiskSpeed(2, 2)
    monkeypatch.setattr(disk_speed, "boot_id", lambda: "6c1f")
    assert measured_speed([image], tmp_path) == first
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(CACHE)] == [CACHE]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[1, 2]", b"3", b"\xff", b'{"KEY": {"reads_per_second": 0, "bytes_per_second": 1}}',
     b'{"KEY": {"reads_per_second": 1}}', b'{"KEY": 7}', b'{"KEY": null}'],
)  # fmt: skip
def test_a_cache_that_makes_no_sense_is_measured_anew(image, tmp_path, measurements, content):
    measured_speed([image], tmp_path)
    [key] = json.loads((tmp_path / CACHE).read_text())
    (tmp_path / CACHE).write_bytes(content.replace(b"KEY", key.encode()))
    assert measured_speed([image], tmp_path) == DiskSpeed(2, 2)
    assert measured_speed([image], tmp_path) == DiskSpeed(2, 2)


def test_a_directory_that_cannot_be_written_is_no_error_and_an_image_that_is_gone_is_named(
    image, tmp_path, measurements
):
    for beside in (tmp_path / "none", image):
        assert measured_speed([image], beside) in (DiskSpeed(1, 1), DiskSpeed(2, 2))
    with pytest.raises(StorageError, match="gone: No such file"):
        measured_speed([tmp_path / "gone"], tmp_path)


def test_measuring(image):
    """Figures of a real file: positive, and no descriptor is left."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    found = measure([image, image], 0.02)
    assert found.reads_per_second > 0 and found.bytes_per_second > 0 and found.gap >= 0
    assert found.latency is not None and found.latency * found.reads_per_second > 0.99
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize("sizes", [[0], [ALIGNMENT - 1], [ALIGNMENT], [0, ALIGNMENT, 3 * ALIGNMENT + 512], [512, 0]])
def test_images_of_less_than_a_block(tmp_path, sizes):
    """Small layouts over many images have empty ones."""
    paths = [tmp_path / str(k) for k in range(len(sizes))]
    for path, size in zip(paths, sizes, strict=True):
        path.write_bytes(bytes(size))
    found = measure(paths, 0.01)
    assert found.reads_per_second > 0 and found.bytes_per_second > 0


def test_a_read_that_ends_early_is_refused(image):
    assert large_reads([str(image)], image.stat().st_size, 0.01) > 0
    with pytest.raises(StorageError, match=r"image: ends at byte .*: the file was truncated"):
        large_reads([str(image)], 4 * image.stat().st_size, 0.01)


@pytest.mark.parametrize(("asked", "speed", "drives", "depth", "share", "words"), [
    ("auto", (7e5, 6e9, 324e-6), 1, 227, 1.0, "700,000 reads/s x 324 us = 227 for each of 1"),
    (128, (7e5, 6e9, 324e-6), 1, 128, 0.564, "asked for"),
    ("auto", (2.8e6, 6e9, 324e-6), 4, 227, 1.0, "= 227 for each of 4"),
    ("auto", (1e5, 6e9, 1e-4), 1, 128, 1.0, "= 10 for each of 1, at least 128"),
    ("auto", (2e6, 6e9, 4e-4), 1, 256, 0.32, "= 800 for each of 1, at most 256"),
    ("auto", (7e5, 6e9), 1, 128, None, "the default, because the disks' latency is unknown"),
    ("auto", None, 2, 128, None, "the default"), (7, None, 2, 7, None, "asked for"),
])  # fmt: skip
def test_reads_in_flight_follow_from_latency_and_rate(asked, speed, drives, depth, share, words):
    found = QueueDepth.choose(asked, None if speed is None else DiskSpeed(*speed), drives)
    assert found.depth == depth and words in found.reason
    assert found.peak_share == (share if share is None else pytest.approx(share, abs=1e-3))
    assert f"{depth} reads in flight for each stripe file" in str(found)
    assert (f"{share:.0%} of the disks' peak" in str(found)) if share is not None else "peak" not in str(found)


def test_a_model_may_have_a_latency(tmp_path, image, measurements):
    path = tmp_path / "disk.json"
    path.write_text('{"reads_per_second": 7e5, "bytes_per_second": 6e9, "latency": 324e-6}')
    assert read_speed(path) == DiskSpeed(7e5, 6e9, 324e-6)
    assert cached_speed([image], tmp_path)[0] is None and not measurements
    assert measured_speed([image], tmp_path) == cached_speed([image], tmp_path)[0] == DiskSpeed(1, 1)
