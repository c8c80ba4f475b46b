"""Two runs on one output at once, in two processes: the second is refused and told who is at work."""

from __future__ import annotations

import re
import subprocess
import time
from pathlib import Path

import pytest
from trials import STAGES
from warm_processes import Interpreter, interpret

import tiering

# Runs a command that stops when everything but the manifest is written.
STOPPED = """
import sys, time
from tiering.artifacts.writer import ArtifactWriter
from tiering.cli.main import main

def stop(*arguments, **options):
    print("reached", flush=True)
    time.sleep(60)

ArtifactWriter.commit = stop
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("stage", ["import", "score", "layout"])
def test_the_second_is_refused(inputs: Path, tmp_path: Path, stage: str) -> None:
    argv = STAGES[stage].argv.replace("{}", str(inputs)).replace("@", str(tmp_path)).split()
    argv += [] if stage == "import" else ["--no-verify"]  # the inputs' checksums are of other blocks
    out = tmp_path / STAGES[stage].out
    first = Interpreter(STOPPED, *argv)
    try:
        wait_for(first, "reached\n")
        for more in ((), ("--force",)):
            second = run(*argv, *more)
            assert second.returncode == 1
            wanted = rf"error: {out}: process {first.pid} is writing it, since \d{{4}}-\d\d-\d\d [\d:]{{8}}; wait .*\n"
            assert re.fullmatch(wanted, second.stderr), second.stderr
    finally:
        first.kill()
        first.wait()
    assert (tmp_path / f".{out.name}.lock").read_text().startswith(f"{first.pid} "), "a dead process's lock is there"
    assert run(*argv).returncode == 0
    assert tiering.check(out) == []
    assert not [name for name in (path.name for path in tmp_path.iterdir()) if name.startswith(".")]


def wait_for(process: Interpreter, text: str) -> None:
    end = time.monotonic() + 60
    while process.said() != text:
        assert time.monotonic() < end, process.said()
        time.sleep(0.01)


def run(*argv: str) -> subprocess.CompletedProcess[str]:
    return interpret("import sys; from tiering.cli.main import main; sys.exit(main(sys.argv[1:]))", *argv)
