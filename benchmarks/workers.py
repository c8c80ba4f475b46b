"""Another interpreter that takes turns on request: a peer's own environment, or another checkout.

What is compared may want other versions of torch and numpy, so it lives in a process of its own, which a file of
`benchmarks/programs` runs in. Data go there as files; a turn is one line through a pipe and one line back, timed there.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import Spent, Work
from tiering.errors import CapabilityError

PROGRAMS = Path(__file__).with_name("programs")


class Worker:
    """The other process; a context manager that ends it.

    `CapabilityError` says why it does not start, what cannot be loaded there, or how a turn failed.
    """

    def __init__(self, python: Path | str, program: str | Path, *arguments: object) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        try:
            self._process = subprocess.Popen(
                [str(word) for word in (python, "-W", "ignore", PROGRAMS / program, *arguments)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True,
                env={**environment, "DGLBACKEND": "pytorch"},
            )  # fmt: skip
        except OSError as error:
            self._errors.close()
            raise CapabilityError(f"{python}: {error.strerror}") from None
        assert self._process.stdin is not None and self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout
        try:
            greeting = self._read_reply()
        except CapabilityError:
            self.__exit__()
            raise
        self.name = str(greeting["name"])
        """Name of the library there, with its version."""
        self.works = list(greeting["works"])
        """Works that can be asked for."""

    def turn(self, work: str, *arguments: Any) -> Spent:
        """Do a work once."""
        with suppress(BrokenPipeError):  # the answer, which does not come, says it
            print(json.dumps([work, *arguments]), file=self._requests, flush=True)
        answer = self._read_reply()
        if "error" in answer:
            raise CapabilityError(f"{self.name}, {work}: {answer['error']}")
        return Spent(answer["wall"], answer["cpu"], answer["result"])

    def work(self, work: str, *arguments: Any) -> Work:
        """Return `turn`, as a side of a comparison."""
        return partial(self.turn, work, *arguments)

    def _read_reply(self) -> Any:
        line = self._answers.readline()
        if line:
            return json.loads(line)
        code = self._process.wait()
        self._errors.seek(0)
        said = self._errors.read().decode(errors="replace").strip().splitlines()
        raise CapabilityError(f"its process ended with exit code {code}: {said[-1] if said else 'silently'}")

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(BrokenPipeError):
            self._requests.close()  # the worker ends with its input
        self._process.wait(timeout=60)
        self._answers.close()
        self._errors.close()


@contextmanager
def library(
    name: str, python: Path | str, task: Mapping[str, Any], arrays: Mapping[str, Any]
) -> Iterator[tuple[Worker | str, Path]]:
    """Open a worker with a peer's library, a task and arrays, or say why not; and the folder where it saves."""
    with tempfile.TemporaryDirectory(prefix="tiering-bench-") as place:
        folder = Path(place)
        for key, array in arrays.items():
            if array is not None:
                np.save(folder / f"{key}.npy", array)
        (folder / "task.json").write_text(json.dumps(task))
        try:
            worker = Worker(python, "peers.py", name, folder)
        except CapabilityError as error:
            yield f"not installed or not loadable: {error}", folder
            return
        with worker:
            yield worker, folder
