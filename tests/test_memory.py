"""The memory budget: what the user writes, what the system says, what is left."""

from __future__ import annotations

import mmap
import subprocess
import sys

import pytest

from tiering import memory
from tiering.errors import BudgetError, InputError
from tiering.memory import Budget, available_memory, own_memory, parse_memory, release_unused, total_memory

MIB = 1 << 20


def test_forms():
    assert parse_memory("8GiB").limit == 8 << 30
    assert parse_memory(4096).limit == 4096
    assert parse_memory("50%").limit == pytest.approx(total_memory() / 2, abs=1)
    auto = parse_memory(None)
    assert auto.text == "auto" and own_memory() < auto.limit < total_memory()
    assert parse_memory(auto) is auto


@pytest.mark.parametrize("text", ["0", "0%", "much", "-1GiB", "200%", "8 gigs"])
def test_nonsense(text):
    with pytest.raises(InputError, match=r"memory: expected"):
        parse_memory(text)


HELD = """
import sys

import numpy as np
from tiering.memory import own_memory
MIB = 1 << 20
before = own_memory()
held = np.ones(64 * MIB, np.uint8)
counted = own_memory() - before
held.tofile(sys.argv[1])
del held
mapped = np.memmap(sys.argv[1], np.uint8, "r")
assert int(mapped.sum(dtype=np.int64)) == 64 * MIB
print(counted // MIB, (own_memory() - before) // MIB)
"""


def test_what_is_held_counts_and_mapped_files_do_not(tmp_path):
    """In a process of its own: what other tests leave behind comes and goes."""
    command = [sys.executable, "-c", HELD, str(tmp_path / "file")]
    held, mapped = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    assert 60 < held < 80
    assert mapped < 20


def test_too_little_says_how_much_would_do():
    budget = Budget(40 * MIB, "40MiB", resident=30 * MIB)
    budget.require(5 * MIB, "scores")
    with pytest.raises(
        BudgetError, match=r"scores: 8 bytes a node need 64 MiB .* give memory=\"(\d+)MiB\" or more"
    ) as caught:
        budget.require(64 * MIB, "scores: 8 bytes a node")
    told = int(str(caught.value).split('memory="')[1].split("MiB")[0]) * MIB
    assert 94 * MIB < told < 110 * MIB
    Budget(told, "told", resident=30 * MIB).require(64 * MIB, "scores")
    assert isinstance(caught.value, MemoryError)


def test_what_is_held_is_measured_once_and_what_is_taken_is_said():
    release_unused()
    before = own_memory()
    budget = parse_memory(before + 100 * MIB)
    left = budget.left()
    held = mmap.mmap(-1, 50 * MIB)  # not the allocator's, which may have memory left over from earlier tests
    held.write(bytes(50 * MIB))
    assert 80 * MIB < left <= 100 * MIB and budget.left() == left
    assert budget.without(len(held)).left() == left - len(held)
    assert parse_memory("1GiB").resident - budget.resident > 40 * MIB
    assert Budget(1, "1", resident=2).left() == 0


@pytest.mark.parametrize(
    ("controllers", "files"),
    [
        ("memory", {"memory.limit_in_bytes": "1000000", "memory.stat": "total_rss 300\ntotal_shmem 20\ntotal_cache 9"}),
        ("", {"memory.max": "1000000", "memory.stat": "anon 300\nshmem 20\nfile 9"}),
    ],
)
def test_control_groups(tmp_path, monkeypatch, controllers, files):
    """Both versions: the lowest limit on the way up counts, page cache is free."""
    root = tmp_path / "sys/fs/cgroup" / ("memory" if controllers else "")
    group = root / "jobs/one"
    group.mkdir(parents=True)
    for name, text in files.items():
        (group / name).write_text(text + "\n")
        (group.parent / name).write_text(("9223372036854771712" if "stat" not in name else text) + "\n")
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"7:cpu:/\n4:{controllers}:/jobs/one\n")
    monkeypatch.setattr(memory, "Path", lambda text: tmp_path / str(text).lstrip("/"))
    monkeypatch.setattr(memory, "_machine", lambda name: 1 << 40)
    assert total_memory() == 1_000_000
    assert available_memory() == 1_000_000 - 320
