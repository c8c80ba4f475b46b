"""Ctrl-C, SIGTERM and SIGHUP at any moment: one line, an exit code, and what can go on is kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from warm_processes import stopped

# Sends SIGINT when a module is looked for.
WHILE_LOADING = """
import os, signal, sys

class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Finder)
sys.argv = ["tiering", "info", "nowhere"]
from tiering.cli.main import run
run()
"""


@pytest.mark.parametrize("module", ["click", "tiering.cli.commands", "numpy", "tiering.formats.registry"])
def test_interrupted_while_modules_load(module: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", WHILE_LOADING.format(module=module)], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr, found.stdout) == (130, "interrupted\n", "")


@pytest.mark.parametrize(("number", "code", "words"), [
    (signal.SIGINT, 130, "interrupted"), (signal.SIGTERM, 143, "stopped by SIGTERM"),
    (signal.SIGHUP, 129, "stopped by SIGHUP"),
])  # fmt: skip
def test_what_is_finished_is_kept(tiering_cli, tmp_path, tiny_dataset, number, code, words) -> None:
    process = stopped("import", tiny_dataset, "--out", tmp_path / "graph")
    os.kill(process.pid, number)
    done, command = process.wait(), f"tiering import {tiny_dataset} --out {tmp_path / 'graph'}"
    assert (done.returncode, done.stderr) == (code, f"{words}; finished steps are kept; resume with: {command}\n")
    assert "resuming an earlier run" in tiering_cli(*command.split()[1:]).ok().err


def test_the_second_ends_at_once(tmp_path, tiny_dataset) -> None:
    process = stopped("import", tiny_dataset, "--out", tmp_path / "graph", deaf="BaseException")
    os.kill(process.pid, signal.SIGTERM)
    process.wait_for("told\n")
    os.kill(process.pid, signal.SIGTERM)
    assert process.wait().returncode == -signal.SIGTERM


def test_what_was_ignored_stays_so() -> None:
    """As under nohup."""
    script = (
        "import os, signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); sys.argv = ['tiering', '--version']\n"
        "from tiering.cli.main import run\n"
        "try:\n    run()\nfinally:\n    os.kill(os.getpid(), signal.SIGHUP); print('alive')"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert found.returncode == 0 and found.stdout.endswith("alive\n")


def test_nothing_is_kept_where_nothing_was_done(tiering_cli, tmp_path, tiny_dataset, monkeypatch) -> None:
    def interrupt(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tiering.datasets.open.open_dataset", interrupt)
    result = tiering_cli("import", tiny_dataset, "--out", tmp_path / "graph")
    assert (result.code, result.err) == (130, "interrupted\n")
