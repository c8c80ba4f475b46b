"""Another interpreter that takes turns on request: a peer's own environment, or another checkout.

What is compared may want other versions of torch and numpy than this package is used with, so it lives in a process of
its own, which `benchmarks/programs` run in. Data go there as files; a turn is one line through a pipe and one line
back, and is timed there.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import Spent, Work
from tiering.errors import CapabilityError

PROGRAMS = Path(__file__).with_name("programs")


class Worker:
    """The other process; a context manager that ends it.

    Parameters
    ----------
    python
        Interpreter.
    program
        A file of `PROGRAMS`.
    arguments
        Its arguments.

    Raises
    ------
    CapabilityError
        If it does not start, or what it needs cannot be loaded there.
    """

    def __init__(self, python: Path | str, program: str | Path, *arguments: object) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            self._process = subprocess.Popen(
                [str(each) for each in (python, "-W", "ignore", PROGRAMS / program, *arguments)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
                env={**environment, "DGLBACKEND": "pytorch"},
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise CapabilityError(f"{python}: {error.strerror}") from None
        try:
            greeting = self._answer()
        except CapabilityError:
            self.__exit__()
            raise
        self.name = str(greeting["name"])
        """What runs there, with its version."""
        self.works = list(greeting["works"])
        """What can be asked for."""

    def turn(self, work: str, *arguments: Any) -> Spent:
        """Do a work once.

        Raises
        ------
        CapabilityError
            If it fails there.
        """
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the answer, which does not come, says it
            print(json.dumps([work, *arguments]), file=self._process.stdin, flush=True)
        answer = self._answer()
        if "error" in answer:
            raise CapabilityError(f"{self.name}, {work}: {answer['error']}")
        return Spent(answer["wall"], answer["cpu"], answer["result"])

    def work(self, work: str, *arguments: Any) -> Work:
        """`turn`, as a side of a comparison."""
        return partial(self.turn, work, *arguments)

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            raise CapabilityError(f"its process ended with exit code {code}: {said[-1] if said else 'silently'}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()  # the worker ends with its input
        self._process.wait(timeout=60)
        self._process.stdout.close()
        self._errors.close()
