"""Engines where they are hindered: io_uring forbidden or without descriptors, file systems without O_DIRECT."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from tiering import native
from tiering.errors import CapabilityError, StorageError
from tiering.runtime import engines

FORBID = """
    # A seccomp filter as container runtimes install it: system call 425 (io_uring_setup) fails with EPERM.
    import ctypes, struct
    libc = ctypes.CDLL(None, use_errno=True)
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, 425), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc.prctl(38, 1, 0, 0, 0)
    if libc.prctl(22, 2, program, 0, 0) != 0:
        print("no seccomp here")
        raise SystemExit(0)
"""
EXHAUST = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 4096))
"""


def run_script(*parts: str, argument: object = "") -> str:
    """Run pieces of Python code, one after the other, in a process of its own; return what it printed."""
    code = "\n".join(textwrap.dedent(part) for part in ("from tiering import native", *parts))
    done = subprocess.run(
        [sys.executable, "-c", code, str(argument)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


needs_uring = pytest.mark.skipif(bool(native.uring_unavailable()), reason=native.uring_unavailable())


@needs_uring
def test_forbidden_by_seccomp(kit, build):
    layout = build(kit.small_graph())
    use = """
    import logging, sys
    import numpy, tiering
    logging.basicConfig(stream=sys.stdout)
    layout = tiering.open(sys.argv[1])
    features = layout.features()
    print("engine", features.engine, len(features.gather_numpy(numpy.arange(300))))
    try:
        layout.features(engine="io_uring")
    except tiering.errors.CapabilityError as error:
        print("refused:", error)
    """
    out = run_script(FORBID, use, argument=layout.path)
    if "no seccomp here" in out:
        pytest.skip(out)
    assert "engine threads 300" in out
    assert "because io_uring is not available: io_uring is forbidden here, by a container's seccomp profile" in out
    assert "refused: engine io_uring: io_uring is forbidden here" in out


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
        reader = engines.open_reader([image], 4096, engine, depth=4)
        assert reader.direct or reader.note or engine == "mmap"
        table = native.TieredTable(1024, [0, 0, 0, 80], None, [], None, reader, 0, 1024, 4, 4096)
        ids = np.random.default_rng(1).integers(0, 80, 200)
        out = np.empty((200, 1024), np.uint8)
        table.gather(ids, out)
        np.testing.assert_array_equal(out, pages.reshape(80, 1024)[ids])
    finally:
        image.unlink(missing_ok=True)


def test_direct_demanded_of_mmap(tmp_path):
    with pytest.raises(CapabilityError, match="mmap engine always goes through the page cache"):
        engines.open_reader([tmp_path / "image"], 4096, "mmap", direct="on")


def test_image_that_cannot_be_opened(tmp_path):
    with pytest.raises(StorageError, match=r"image: .*No such file"):
        engines.open_reader([tmp_path / "image"], 4096, "threads")
    with pytest.raises(StorageError, match=r"not a file or block device|Is a directory"):
        engines.open_reader([tmp_path], 4096, "threads", direct="off")


def test_more_reads_than_depth(tmp_path, engine):
    image = tmp_path / "image"
    pages = np.random.default_rng(0).integers(0, 256, (500, 4096), dtype=np.uint8)
    image.write_bytes(pages.tobytes())
    for depth in (1, 2, 512):
        reader = engines.open_reader([image], 4096, engine, depth=depth)
        assert reader.depth == depth
        table = native.TieredTable(4096, [0, 0, 0, 500], None, [], None, reader, 0, 4096, 1, 4096)
        ids = np.random.default_rng(depth).permutation(500)
        out = np.empty((500, 4096), np.uint8)
        table.gather(ids, out)
        np.testing.assert_array_equal(out, pages[ids])
