"""In a memory group that has no room for the interpreter and its modules a line says how much they take."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from memory_group import memory_group

from tiering import memory
from tiering.errors import BudgetError

MIB = 1 << 20
SAID = r"memory: {}: expected at least {} MiB for .* found (\d\d|2\d\.\d+) MiB; raise the limit of the container .*"


@pytest.mark.parametrize(
    "argv", [["info", "graph"], ["import", "data", "--out", "graph"], ["score", "g", "--out", "s"]]
)
def test_a_group_below_the_floor(argv: list[str]) -> None:
    with memory_group(24 * MIB) as group:
        done = group.run(*argv)
    floor = memory.FLOORS.get(argv[0], memory.FLOOR) // MIB
    assert done.returncode == 1, "not killed"
    assert re.fullmatch("error: " + SAID.format(argv[0], floor) + "\n", done.stderr)


@pytest.mark.parametrize("call", ["open('graph')", "check('graph')", "import_graph('data', 'graph')"])
def test_the_same_in_python(call: str) -> None:
    code = f"import tiering\ntry: tiering.{call}\nexcept MemoryError as error: print(error)"
    with memory_group(24 * MIB) as group:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, preexec_fn=group.group.enter, timeout=300
        )
    assert done.returncode == 0, "not killed"
    assert re.fullmatch(SAID.format(r"\w+", r"\d\d") + "\n", done.stdout)


def test_commands_run_in_a_group_as_large_as_their_floor() -> None:
    with memory_group(memory.FLOOR + 4 * MIB) as group:
        done = group.run("info", "there is nothing here")
    assert (done.returncode, done.stderr) == (1, "error: there is nothing here: no such file or directory\n")


def test_what_the_process_holds_already_counts_as_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: 0)
    monkeypatch.setattr(memory, "own_memory", lambda: memory.FLOOR)
    memory.require_floor("info")
    with pytest.raises(BudgetError, match="trace: expected at least 192 MiB"):
        memory.require_floor("trace")
