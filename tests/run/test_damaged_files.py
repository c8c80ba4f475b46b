"""Files of tasks that a stopped run has left, damaged before the next one goes on: those tasks run again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tiering.run.files import output_file
from tiering.run.job import Counters, Job
from tiering.run.local import LocalExecutor
from tiering.run.step import Step, TaskContext
from tiering.run.store import open_store


def write(context: TaskContext) -> None:
    """One file of the numbers below 1000."""
    with output_file(context, context.params["folder"], f"file-{context.index}", "int64", (1000,)) as file:
        file.append(np.arange(1000))


def test_a_task_whose_file_is_damaged_runs_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    stage = Step("files", f"{__name__}:write", 3, {"folder": str(tmp_path / "out")})
    executor, store = LocalExecutor(2), open_store(str(tmp_path / "store"))

    def run() -> tuple[int, list[Path]]:
        counters = Counters()
        manifests = Job(store, "job", executor, counters=counters).run(stage)
        return counters.run, [tmp_path / "out" / manifest["file"]["at"] for manifest in manifests]

    ran, files = run()
    assert ran == 3 and run() == (0, files)
    flipped = bytearray(files[1].read_bytes())
    flipped[77] ^= 4
    files[1].write_bytes(flipped)
    files[2].write_bytes(files[2].read_bytes()[:-8])
    ran, again = run()
    executor.close()
    assert ran == 2 and again[0] == files[0]
    assert "1 of 1 blocks from an earlier run are damaged, and made again" in capsys.readouterr().err
    assert all(np.array_equal(np.fromfile(path, np.int64), np.arange(1000)) for path in again)
