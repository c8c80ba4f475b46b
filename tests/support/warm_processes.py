"""Processes forked from a server that has torch, this package and the programs of tests loaded (`warm_modules`).

Loading them takes longer than what most of these processes do.
"""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from multiprocessing import forkserver
from pathlib import Path
from typing import Any


def context() -> Any:
    """As of `multiprocessing.get_context`."""
    forkserver.set_forkserver_preload(["warm_modules"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # the server does not know sys.path of its parent
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return multiprocessing.get_context("forkserver")


def start(program: Callable[..., None], *arguments: Any) -> tuple[Any, Any]:
    """Run ``program(connection, *arguments)`` in a process of its own; returns the process and the line to it."""
    forked = context()
    here, there = forked.Pipe()
    process = forked.Process(target=program, args=(there, *arguments), daemon=True)
    process.start()
    there.close()
    return process, here


class Interpreter:
    """What ``python -c script *argv`` is, but that it is warm, and gone once the script has ended."""

    def __init__(self, script: str, *argv: object, cwd: Path | None = None) -> None:
        self.arguments = ["-c", *map(str, argv)]
        self._folder = tempfile.TemporaryDirectory()
        self._files = [Path(self._folder.name) / name for name in ("out", "err")]
        for file in self._files:
            file.touch()
        paths = [str(file) for file in self._files]
        self._process = context().Process(target=_interpret, args=(script, self.arguments, cwd, *paths))
        self._process.start()
        self.pid: int = self._process.pid

    def kill(self) -> None:
        self._process.kill()

    def said(self) -> str:
        """What it wrote to standard output until now."""
        return self._files[0].read_text()

    def wait_for(self, text: str, seconds: float = 300) -> None:
        """Wait until it has written a text to standard output."""
        end = time.monotonic() + seconds
        while text not in self.said():
            assert self._process.is_alive() and time.monotonic() < end, self._files[1].read_text()
            time.sleep(0.005)

    def wait(self, seconds: float = 300) -> subprocess.CompletedProcess[str]:
        """As of `subprocess.run`, once it has ended."""
        self._process.join(seconds)
        if self._process.exitcode is None:
            self._process.kill()
            raise subprocess.TimeoutExpired(self.arguments, seconds)
        with self._folder:
            out, err = (file.read_text() for file in self._files)
        return subprocess.CompletedProcess(self.arguments, self._process.exitcode, out, err)


def interpret(script: str, *argv: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter of its own to its end."""
    return Interpreter(script, *argv, cwd=cwd).wait()


_STOPPED = """
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


def stopped(*argv: object, deaf: str = "ZeroDivisionError") -> Interpreter:
    """A command that has written everything but the manifest, and sleeps; on, where it gets an exception of `deaf`."""
    process = Interpreter(_STOPPED.format(deaf=deaf), *argv)
    process.wait_for("reached\n")
    return process


def _interpret(script: str, arguments: list[str], cwd: Path | None, out: str, err: str) -> None:
    for fd, path in ((1, out), (2, err)):
        file = os.open(path, os.O_WRONLY | os.O_APPEND)
        os.dup2(file, fd)
        os.close(file)
    if cwd is not None:
        os.chdir(cwd)
    sys.argv = arguments
    code: object = 1
    try:
        exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
        code = 0
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else int(code is not None))
