"""The kernels that read from drives, as nvcc compiled them, against drives that look whenever a thread polls."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from drive_cases import CASES, CHECKS, Case, read_case
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
        lines = text.split("\n")
        del lines[[i for i, line in enumerate(lines) if re.search(pattern, line)][number]]
        return "\n".join(lines)

    return change


def _plain_completions(text: str) -> str:
    return text.replace("ld.acquire.sys.b32", "ld.global.b32", 1)


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


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_failures_and_rounds(check: Callable[[dict[str, Kernel]], None], kernels: Kernels) -> None:
    check(kernels["drive_rows"])


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
