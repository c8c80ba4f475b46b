"""Engines where they are hindered: io_uring forbidden or without descriptors, file systems without O_DIRECT."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from forbidden_calls import FORBID, run_script

import tiering
from tiering import native
from tiering.errors import StorageError
from tiering.loader.options import ReadOptions
from tiering.loader.tables import ssd

EXHAUST = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))
"""


needs_uring = pytest.mark.skipif(bool(native.uring_unavailable()), reason=native.uring_unavailable())


READ = """
    import logging, sys
    import numpy, tiering
    logging.basicConfig(stream=sys.stdout)
    layout = tiering.open(sys.argv[1])
    features = layout.features(engine="threads", direct="off")
    # Rows of the ssd tier alone: beside others the reads may have arrived before anybody waits for them.
    ids = numpy.arange(*features.placement()["ssd"]["ranks"])
    expected = features.gather_numpy(ids)
    def read(engine, until=None):
        for _ in range(200):  # a read that has arrived already is not waited for
            features = layout.features(engine=engine, direct="on")  # reads from the page cache end as they begin
            same = len(ids) > 100 and (features.gather_numpy(ids) == expected).all()
            if until in (None, features.engine):
                break
        print("read", engine, "by", features.engine, same)
    def refused(engine):
        try:
            read(engine, until="nobody")
        except tiering.errors.TieringError as error:
            print("refused:", type(error).__name__, error)
"""


def read_forbidden(layout: object, *parts: str) -> str:
    out = run_script(FORBID, READ, *parts, argument=layout.path)
    if "no seccomp here" in out:
        pytest.skip(out)
    return out


@needs_uring
@pytest.mark.parametrize("call", ["SETUP", "ENTER"])
@pytest.mark.parametrize("error", ["EPERM", *(pytest.param(e, marks=pytest.mark.slow) for e in ("EINVAL", "ENOMEM"))])
def test_ring_forbidden_from_the_start(kit, build, call, error):
    out = read_forbidden(build(kit.small_graph()), f"forbid({call}, {error}); read('auto'); refused('io_uring')")
    assert "read auto by threads True" in out
    assert out.count("because io_uring is not available: ") == 1
    assert "refused: CapabilityError engine io_uring: " in out
    if error == "EPERM":
        assert "not available: io_uring is forbidden here, by a container's seccomp profile" in out


@needs_uring
@pytest.mark.parametrize("error", ["ENOMEM", *(pytest.param(e, marks=pytest.mark.slow) for e in ("EPERM", "EINVAL"))])
@pytest.mark.parametrize("waiting", [False, True])
def test_ring_forbidden_after_open(kit, build, error, waiting):
    """`waiting`: reads still go to the kernel, and must be awaited although the call that waits is refused."""
    use = f"""
    read("auto")
    read("io_uring")
    forbid(ENTER, {error}, {waiting})
    refused("io_uring")
    refused("io_uring")
    read("auto", until="threads")
    read("auto", until="threads")
    """
    out = read_forbidden(build(kit.small_graph(page_bytes=512)), use)
    assert "read auto by io_uring True\nread io_uring by io_uring True" in out
    assert out.count("refused: StorageError ") == 2
    assert out.count("read auto by threads True") == 2
    assert out.count("because io_uring is not available: ") == 1


@needs_uring
def test_ring_forbidden_in_a_child(kit, build):
    """Its parent's ring works, its own is refused."""
    use = """
    import os
    read("auto")
    child = os.fork()
    if child == 0:
        forbid(SETUP, EPERM)
        read("auto")
        sys.stdout.flush()
        os._exit(0)
    print("child", os.waitpid(child, 0)[1])
    read("auto")
    """
    out = read_forbidden(build(kit.small_graph()), use)
    assert "read auto by threads True" in out
    assert "child 0\nread auto by io_uring True" in out


@needs_uring
def test_no_descriptor_left():
    out = run_script(EXHAUST, "print(native.uring_unavailable())")
    assert "no file descriptor is left for the ring: raise `ulimit -n`" in out


def test_memory_file_system(engine):
    """tmpfs takes O_DIRECT or not, by kernel version; rows are right and the reader says which it was."""
    folder = Path("/dev/shm")
    if not os.access(folder, os.W_OK):
        pytest.skip("no tmpfs at /dev/shm")
    image = folder / f"tiering-test-{os.getpid()}"
    pages = np.random.default_rng(0).integers(0, 256, (20, 4096), dtype=np.uint8)
    try:
        image.write_bytes(pages.tobytes())
        reader = ssd.open_reader([image], 4096, ReadOptions(engine, depth=4))
        assert reader.direct or reader.note
        table = native.TieredTable(1024, [0, 0, 0, 80], None, [], None, reader, 0, 1024, 4, 4096, 4096)
        ids = np.random.default_rng(1).integers(0, 80, 200)
        out = np.empty((200, 1024), np.uint8)
        table.gather(ids, out)
        np.testing.assert_array_equal(out, pages.reshape(80, 1024)[ids])
    finally:
        image.unlink(missing_ok=True)


@pytest.fixture
def block_device():
    """Makes loop devices with the content of files."""
    if os.geteuid() != 0 or shutil.which("losetup") is None:
        pytest.skip("loop devices want root and losetup")
    made = []

    def make(content: Path) -> Path:
        command = ["losetup", "--find", "--show", str(content)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no loop device is to be had: {done.stderr.strip()}")
        made.append(done.stdout.strip())
        return Path(made[-1])

    yield make
    for device in made:
        subprocess.run(["losetup", "--detach", device], check=True)


def test_block_devices_take_the_place_of_stripe_files(kit, build, engine, block_device):
    layout = build(kit.small_graph(images=2))
    rows = np.arange(300)
    expected = layout.features(engine=engine).gather_numpy(rows)
    for image in layout.artifact.images:
        content = image.rename(image.with_name(f"content-of-{image.name}"))
        image.symlink_to(block_device(content))
    with tiering.open(layout.path) as reopened:
        found = reopened.features(engine=engine, verify=True).gather_numpy(rows)
    np.testing.assert_array_equal(found, expected)


def test_image_that_cannot_be_opened(tmp_path):
    with pytest.raises(StorageError, match=r"image: .*No such file"):
        ssd.open_reader([tmp_path / "image"], 4096, ReadOptions("threads"))
    with pytest.raises(StorageError, match=r"not a file or block device|Is a directory"):
        ssd.open_reader([tmp_path], 4096, ReadOptions("threads", direct="off"))


def test_images_by_descriptor(tmp_path, engine):
    """An open layout names its images so; errors call them by their own names."""
    image = tmp_path / "image"
    image.write_bytes(bytes(8192))
    with image.open("rb") as file:
        reader = ssd.open_reader([Path(f"/proc/self/fd/{file.fileno()}")], 4096, ReadOptions(engine))
    table = native.TieredTable(4096, [0, 0, 0, 2], None, [], None, reader, 0, 4096, 1, 4096, 4096)
    os.truncate(image, 4096)
    with pytest.raises(OSError, match=f"{image}: ends at byte 4096"):
        table.gather(np.array([0, 1]), np.empty((2, 4096), np.uint8))
