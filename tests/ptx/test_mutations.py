"""Whether the tests of the kernels that read from drives notice an instruction that is missing, one at a time."""

from __future__ import annotations

import random
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest
from drive_cases import CASES, CHECKS, read_case
from ptx_program import Kernel, read_kernels

pytestmark = pytest.mark.long
SAMPLE, NOTICED = 91, 70
_SECONDS = 30
"""Of the processor: a kernel that takes longer does not end."""


def deletable(text: str) -> list[int]:
    """Lines without which no register lacks its value: stores, atomics, meetings, fences, branches."""
    wanted = re.compile(r"\s*(@!?%p\d+\s+)?(st\.|atom\.|bar\.|fence\.|bra)")
    return [i for i, line in enumerate(text.split("\n")) if wanted.match(line)]


@contextmanager
def limited() -> Iterator[None]:
    """Raise where the processor takes too long."""

    def stop(signum: int, frame: FrameType | None) -> None:
        raise TimeoutError("the kernel does not end")

    before = signal.signal(signal.SIGVTALRM, stop)
    signal.setitimer(signal.ITIMER_VIRTUAL, _SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def notices(text: str, folder: Path) -> str:
    """What the tests say of a text; empty: nothing."""
    path = folder / "changed.ptx"
    path.write_text(text)
    try:
        kernels = read_kernels(path)
        for case in CASES:
            with limited():
                read_case(kernels, case, most_turns=300_000)
        for check in CHECKS:
            with limited():
                check(kernels)
    except Exception as error:  # whatever stops a kernel
        return f"{type(error).__name__}: {error}"[:100]
    return ""


def test_deleted_lines_are_noticed(kernels: dict[str, dict[str, Kernel]], ptx_folder: Path, tmp_path: Path) -> None:
    text = (ptx_folder / "drive_rows.ptx").read_text()
    lines = text.split("\n")
    assert not notices(text, tmp_path)
    sample = sorted(random.Random(0).sample(deletable(text), SAMPLE))
    missed = [i for i in sample if not notices("\n".join(lines[:i] + lines[i + 1 :]), tmp_path)]
    for i in missed:
        print(f"not noticed: line {i + 1}: {lines[i].strip()}")
    print(f"deleted lines of PTX: {SAMPLE}, noticed: {SAMPLE - len(missed)}")
    assert SAMPLE - len(missed) >= NOTICED
