"""Whether the tests of the kernels that read from drives notice an instruction that is missing, one at a time."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from drive_cases import CASES, CHECKS, read_case
from ptx_program import Kernel, read_kernels

pytestmark = pytest.mark.long
SAMPLE, MISSED = 91, 1
"""Lines that are deleted, and those among them that may go unnoticed: the last meeting of the kernel that copies.

By the model of memory it orders lane 0's stores of a queue's numbers behind the loads of other lanes. On a GPU their
votes do so too, as each lane needs what it has loaded to vote.
"""
EQUIVALENT = {
    "@%p52 bra $L__BB0_42;": "all lanes write the failure of a strange completion: the minimum is the same",
    "@%p147 bra $L__BB0_171;": "all lanes look whether to give up, and take what lane 0 has seen",
    "@%p1 bra $L__BB1_123;": "where no page has landed, one round copies none",
    "@%p54 bra $L__BB1_121;": "a lane without words copies none in the first round of the loop either",
    "@%p14 bra $L__BB0_15;": "divides by 1",
    "@%p47 bra $L__BB0_33;": "divides by 1",
    "@%p4 bra $L__BB1_8;": "divides by 1",
}
"""Lines without which nothing is different, as nvcc 13.0 numbers registers and labels."""

Kernels = dict[str, Kernel]
Place = tuple[str, int]


class Step(NamedTuple):
    """A test, and what it takes on the kernels as they are."""

    seconds: float
    run: Callable[[Kernels], None]
    blocks: set[Place]
    """Kernel and number of the blocks that run."""


def deletable(lines: list[str]) -> dict[int, Place]:
    """Block of each line without which no register lacks its value: stores, atomics, meetings, fences, branches."""
    wanted = re.compile(r"(@!?%p\d+\s+)?(st\.|atom\.|bar\.|fence\.|bra)")
    found, kernel, block = dict[int, Place](), "", 0
    for i, line in enumerate(map(str.strip, lines)):
        if entry := re.search(r"\.entry (\w+)", line):
            kernel, block = entry[1], 0
        if wanted.match(line):
            found[i] = kernel, block
        block += line.endswith(":") or re.search(r"\bbra\b", line) is not None
    return found


def measure(kernels: Kernels) -> list[Step]:
    """All tests, the fastest first."""
    steps = []
    for run in [*(partial(read_case, case=case) for case in CASES), *CHECKS]:
        for kernel in kernels.values():
            kernel.ran.clear()
        begin = time.process_time()
        run(kernels)
        blocks = {(name, block) for name, kernel in kernels.items() for block in kernel.ran}
        steps.append(Step(time.process_time() - begin, run, blocks))
    return sorted(steps, key=lambda step: step.seconds)


def is_noticed(path: Path, place: Place, steps: list[Step]) -> bool:
    """Whether a test fails that runs the block; what others do is the same as ever."""
    try:
        kernels = read_kernels(path)
        for step in steps:
            if place in step.blocks:
                step.run(kernels)
    except Exception:  # whatever stops a kernel
        return True
    return False


def test_deleted_lines_are_noticed(kernels: dict[str, Kernels], ptx_folder: Path, tmp_path: Path) -> None:
    lines = (ptx_folder / "drive_rows.ptx").read_text().split("\n")
    steps, places, path = measure(kernels["drive_rows"]), deletable(lines), tmp_path / "changed.ptx"
    order = random.Random(0).sample(list(places), len(places))
    sample = [i for i in order if " ".join(lines[i].split()) not in EQUIVALENT][:SAMPLE]
    missed = []
    for i in sample:
        path.write_text("\n".join(lines[:i] + lines[i + 1 :]))
        if not is_noticed(path, places[i], steps):
            print(f"not noticed: line {i + 1}: {lines[i].strip()}", flush=True)
            missed.append(i)
    print(f"deleted lines of PTX: {SAMPLE}, noticed: {SAMPLE - len(missed)}")
    renamed = EQUIVALENT.keys() - {" ".join(line.split()) for line in lines}  # by another compiler
    assert len(missed) <= MISSED + len(renamed)
