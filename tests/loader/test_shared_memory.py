"""One copy of a tier for several processes, and nothing left when they end."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tiering.errors import FormatError
from tiering.loader.memory import load_rows

READER = """
import sys
from pathlib import Path
from tiering.loader.memory import load_rows
rows = load_rows(Path(sys.argv[1]), int(sys.argv[2]), shared=True)
entry = Path(f"/proc/self/fd/{rows.block.descriptor}").stat()
print(entry.st_ino, int(rows.array.sum(dtype="u8")), flush=True)
sys.stdin.read()
"""


def start(path, nbytes):
    return subprocess.Popen(
        [sys.executable, "-c", READER, str(path), str(nbytes)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "rows"
    np.random.default_rng(0).integers(0, 256, 300_001, dtype=np.uint8).tofile(path)
    return path


def test_processes_hold_one_copy(file):
    content = np.fromfile(file, np.uint8)
    processes = [start(file, content.size) for _ in range(3)]
    found = [process.stdout.readline().split() for process in processes]
    assert len({inode for inode, _ in found}) == 1
    assert {int(total) for _, total in found} == {int(content.sum(dtype=np.uint64))}
    processes[0].kill()  # whoever read it first may go: the others keep the memory, and newcomers find it
    processes[0].wait()
    newcomer = start(file, content.size)
    assert newcomer.stdout.readline().split() == found[1]
    for process in (*processes, newcomer):
        process.kill()
        process.communicate()


def test_nothing_is_left_of_a_killed_process(file, tmp_path):
    size = file.stat().st_size
    first = start(file, size)
    first.stdout.readline()
    (card,) = Path("/dev/shm").glob(f"tiering-*-rows-*-{file.stat().st_ino}-*")
    first.kill()
    first.communicate()
    assert card.exists()
    other = tmp_path / "other"
    np.arange(5000, dtype=np.uint8).tofile(other)
    rows = load_rows(other, 5000, shared=True)
    assert not card.exists()
    (mine,) = Path("/dev/shm").glob(f"tiering-*-rows-*-{other.stat().st_ino}-*")
    del rows
    gc.collect()
    assert not mine.exists()


def test_within_a_process_it_is_one_object(file):
    size = file.stat().st_size
    first = load_rows(file, size, shared=True)
    assert load_rows(file, size, shared=True) is first
    private = load_rows(file, size)
    assert private is not first
    np.testing.assert_array_equal(private.array, first.array)
    assert not first.array.flags.writeable


def test_a_file_that_changed_is_read_anew(file):
    size = file.stat().st_size
    first = load_rows(file, size, shared=True)
    content = np.fromfile(file, np.uint8)
    content[0] ^= 1
    content.tofile(file)
    assert load_rows(file, size, shared=True).array[0] != first.array[0]


def test_size_is_checked(file):
    with pytest.raises(FormatError, match="expected 7 bytes"):
        load_rows(file, 7, shared=True)
