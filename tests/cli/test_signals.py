"""Ctrl-C, SIGTERM and SIGHUP at any moment: one line, an exit code, and what can go on is kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

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
# Runs a command that stops when everything but the manifest is written; {deaf}: and sleeps on when it is told to end.
STOPPED = """
import contextlib, sys, time
from tiering.artifacts.writer import ArtifactWriter
from tiering.cli.main import run

def stop(*arguments, **options):
    with contextlib.suppress({deaf}):
        print("reached", flush=True)
        time.sleep(60)
    print("told", flush=True)
    time.sleep(60)

ArtifactWriter.commit = stop
run()
"""


@pytest.mark.parametrize("module", ["typer", "tiering.cli.commands", "numpy", "tiering.formats.registry"])
def test_interrupted_while_modules_load(module: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", WHILE_LOADING.format(module=module)], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr, found.stdout) == (130, "interrupted\n", "")


def begin(folder: Path, dataset: Path, *, deaf: str = "ZeroDivisionError") -> subprocess.Popen[str]:
    """An import that has done its work."""
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED.format(deaf=deaf), "import", str(dataset), "--out", str(folder / "graph")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "reached\n"
    return process


@pytest.mark.parametrize(
    ("number", "code", "words"),
    [
        (signal.SIGINT, 130, "interrupted"),
        (signal.SIGTERM, 143, "stopped by SIGTERM"),
        (signal.SIGHUP, 129, "stopped by SIGHUP"),
    ],
)
def test_what_is_finished_is_kept(tiering_cli, tmp_path, tiny_dataset, number, code, words) -> None:
    process = begin(tmp_path, tiny_dataset)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    command = f"tiering import {tiny_dataset} --out {tmp_path / 'graph'}"
    assert said == f"{words}; what is finished is kept, go on with: {command}\n"
    assert process.returncode == code
    assert "going on with" in tiering_cli(*command.split()[1:]).ok().err


def test_the_second_ends_at_once(tmp_path, tiny_dataset) -> None:
    process = begin(tmp_path, tiny_dataset, deaf="BaseException")
    process.terminate()
    assert process.stdout is not None and process.stdout.readline() == "told\n"
    process.terminate()
    assert process.wait(timeout=10) == -signal.SIGTERM
    process.communicate()


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

    monkeypatch.setattr("tiering.datasets.open_dataset", interrupt)
    result = tiering_cli("import", tiny_dataset, "--out", tmp_path / "graph")
    assert (result.code, result.err) == (130, "interrupted\n")
