"""The kernels that read from drives, as nvcc compiled them, against drives that are looked at whenever a thread polls."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from drive_cases import CASES, Case, read_case
from ptx_drives import DriveMemory, Shape, Table, read_list
from ptx_machine import MachineError
from ptx_program import Kernel, read_kernels

from benchmarks.gpu.nvme import INSTRUCTIONS

Kernels = dict[str, dict[str, Kernel]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_right(case: Case, kernels: Kernels) -> None:
    read_case(kernels["drive_rows"], case)


def _without(pattern: str, number: int) -> Callable[[str], str]:
    def change(text: str) -> str:
        begin = text.index(".entry", text.index("drive_rows_kernel") if "copy" not in pattern else 0)
        lines = text[begin:].split("\n")
        del lines[[i for i, line in enumerate(lines) if re.search(pattern, line)][number]]
        return text[:begin] + "\n".join(lines)

    return change


def _plain_completions(text: str) -> str:
    return re.sub(r"ld\.acquire\.sys\.b32(.*\+12\])", r"ld.global.b32\1", text, count=1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(_without(r"bar\.warp", 0), id="lanes do not meet before the doorbell"),
        pytest.param(_without(r"fence\.acq", 0), id="no fence before the doorbell"),
        pytest.param(_without(r"bar\.warp", 1), id="lanes do not meet behind the arrival"),
        pytest.param(_plain_completions, id="plain load"),
        pytest.param(lambda text: text.replace("ld.global.cg", "ld.global"), id="pages from a cache"),
    ],
)
def test_order_of_memory_is_needed(
    change: Callable[[str], str], kernels: Kernels, ptx_folder: Path, tmp_path: Path
) -> None:
    """Each change is one that threads of a processor would not notice."""
    text = (ptx_folder / "drive_rows.ptx").read_text()
    changed = tmp_path / "changed.ptx"
    changed.write_text(change(text))
    assert changed.read_text() != text
    broken = read_kernels(changed)
    with pytest.raises((MachineError, AssertionError)):
        for seed in range(8):
            read_case(broken, Case(seed=seed))


def test_no_cached_loads(ptx_folder: Path, kernels: Kernels) -> None:
    """A drive writes behind the back of caches."""
    text = (ptx_folder / "drive_rows.ptx").read_text()
    assert not re.search(r"ld\.global\.nc|\bcall\b|\.local", text)


@pytest.mark.parametrize("flushed", [False, True])
def test_refused_page_is_named_and_others_are_read(kernels: Kernels, flushed: bool) -> None:
    shape = Shape(drives=2, depth=8)
    table, memory = Table(512, shape), DriveMemory(shape, 1, flushed=flushed)
    memory.bad = (1, 3)
    (found,) = read_list(memory, kernels["drive_rows"], [(table, np.arange(20))])
    assert memory.failure() == (2 * 3 + 1 + 1) << 16 | 0x281
    for row in range(20):
        assert found[row].tobytes() == (b"\xee" * 512 if row == 7 else table.row(row))
    memory.check_idle()


def test_drives_that_fail_end_the_launch(kernels: Kernels) -> None:
    """Silent: too late; stopped by the host; a completion of a command that was not sent. The word names the queue."""
    shape = Shape(depth=8)
    for why, name in ((3, "silent"), (1, "silent"), (2, "repeats")):
        memory = DriveMemory(shape, why)
        setattr(memory, name, True)
        memory.stop[0] = why == 1
        (found,) = read_list(memory, kernels["drive_rows"], [(Table(64, shape), np.arange(40))])
        assert memory.failure() == 0 << 4 | why
        assert (found == 0xEE).all()


def test_two_rounds_at_a_time(kernels: Kernels) -> None:
    """Two launches read side by side, each by pairs of its own, as the calls of two threads do."""
    shape = Shape(drives=2, pairs=2, depth=8, rounds=2)
    for seed in range(3):
        memory = DriveMemory(shape, seed)
        chance = np.random.default_rng(seed)
        tables = [(Table(n, shape, 4, unit), np.sort(chance.choice(90, 60))) for n, unit in ((512, 3), (64, 40))]
        for _ in range(2):
            found = read_list(memory, kernels["drive_rows"], tables)
            for rows, (table, wanted) in zip(found, tables, strict=True):
                assert [row.tobytes() for row in rows] == [table.row(row) for row in wanted.tolist()]
            assert memory.failure(0) == memory.failure(1) == 2**64 - 1
            memory.check_idle()


def test_instructions_a_page(kernels: Kernels) -> None:
    """What `benchmarks nvme` holds its commands per second against: instructions of a warp that never waits."""
    for row_bytes, counted in INSTRUCTIONS.items():
        found = instructions_a_page(kernels["drive_rows"], row_bytes)
        assert found == pytest.approx(counted, rel=0.05), f"benchmarks/gpu/nvme.py: {row_bytes}: {found:.0f}"


def instructions_a_page(kernels: dict[str, Kernel], row_bytes: int, pages: int = 160) -> float:
    """Instructions of PTX for a page from which one row is read, with a queue of 256 entries and an eager drive."""
    shape = Shape(depth=256, page=4096)
    memory, table = DriveMemory(shape, 0, eager=True), Table(row_bytes, shape)
    wanted = np.arange(pages) * (4096 // row_bytes)
    (found,) = read_list(memory, kernels, [(table, wanted)])
    assert found[7].tobytes() == table.row(int(wanted[7]))
    return memory.executed / pages
