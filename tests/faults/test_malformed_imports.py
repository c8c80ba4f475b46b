"""Whatever the user's files are: an import ends in a right graph or in one line that says what is wrong with which."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from malformed import CASES, Case
from mortal import Mortal, clear

Answer = dict[str, object]


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory, where a file costs nothing."""
    with TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as name:
        yield Path(name)


def lines(answer: Answer) -> list[str]:
    return [line for line in str(answer["err"]).splitlines() if not line.startswith("note: ")]


def complaint(answer: Answer, folder: Path) -> str | None:
    """What is wrong with the end of an import that did not make a graph."""
    told = lines(answer)
    if answer["code"] != 1:
        return f"exit code {answer['code']}"
    if len(told) != 1 or not told[0].startswith("error: ") or len(told[0]) > 1500:
        return "not one line of error"
    if re.search("Traceback|internal error|bug in tiering|Unable to allocate|out of memory", told[0]):
        return "no sentence of ours"
    left = [str(path) for path in folder.rglob("*")]
    return f"left behind: {left}" if left else None


def run_case(mortal: Mortal, case: Case, folder: Path) -> str | None:
    """The complaint about a case, if there is one."""
    clear(folder / "out")
    clear(folder / "in")
    argv = case.make(folder / "in" / "data")
    answer = mortal.run("import", *argv, "--out", folder / "out" / "graph", variant="bounded")
    found = complaint(answer, folder / "out")
    missing = [word for word in case.words if word not in str(answer["err"])]
    if found is None and missing:
        found = f"not said: {missing}"
    return f"{case.name}: {found}: {str(answer['err'])[-600:]}" if found else None


def test_malformed(mortal: Mortal, folder: Path) -> None:
    wrong = [found for case in CASES if (found := run_case(mortal, case, folder))]
    print(f"campaign malformed imports: {len(CASES)} trials, {len(CASES) - len(wrong)} refused, {len(wrong)} wrong")
    assert not wrong, "\n".join(wrong)
