"""GraphBolt as a side of the sampling benchmarks: a process of another Python environment, asked for turns.

The last GraphBolt on PyPI wants an older torch and numpy than this package is used with. So it lives in an environment
of its own; the graph goes there as files, and a turn is one line through a pipe and one line back, which takes
some 0.1 ms beside the turn's second.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from tiering.bench.sampling_task import SamplingTask, Sides
from tiering.errors import CapabilityError

WORKER = Path(__file__).with_name("graphbolt_worker.py")
PACKAGES = '"dgl==2.1.0" "torch==2.2.1" "numpy<2" "torchdata<0.8" "setuptools<70" pandas pydantic pyyaml packaging'
HOW_TO = f"not measured: pip install {PACKAGES} in an environment of its own, then --graphbolt-python its interpreter"


@contextmanager
def graphbolt_sides(task: SamplingTask, python: Path | None) -> Iterator[Sides]:
    """GraphBolt with all its threads in one batch, and with batches side by side."""
    if task.options.sampler not in ("uniform", "replacement", "weighted"):
        yield {"graphbolt": f"has no sampler {task.options.sampler!r}"}
        return
    if python is None:
        yield {"graphbolt": HOW_TO}
        return
    with tempfile.TemporaryDirectory(prefix="tiering-bench-") as folder, tempfile.TemporaryFile() as errors:
        _write(task, Path(folder))
        try:
            worker = _Worker(python, folder, errors)
        except (OSError, CapabilityError) as error:
            yield {"graphbolt": f"not installed or not loadable ({error})"}
            return
        with worker:
            yield {
                worker.name: lambda: worker.turn("in one batch"),
                f"{worker.name}, batches side by side": lambda: worker.turn("side by side"),
            }


class _Worker:
    """The other process."""

    def __init__(self, python: Path, folder: str, errors: IO[bytes]) -> None:
        self._errors = errors
        # -I: neither this process's PYTHONPATH nor the worker's own directory are places to import from
        self._process = subprocess.Popen(
            [python, "-I", "-W", "ignore", WORKER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, "DGLBACKEND": "pytorch"},
        )
        try:
            self.name = str(self._answer()["name"])
        except CapabilityError:
            self._close()
            raise

    def turn(self, how: str) -> int:
        """Sample all batches once; the number of edges."""
        assert self._process.stdin is not None
        print(how, file=self._process.stdin, flush=True)
        return int(self._answer()["edges"])

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            raise CapabilityError(
                f"GraphBolt's process ended with exit code {code}: {said[-1] if said else 'silently'}"
            )
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()  # the worker ends with its input
        self._process.wait(timeout=60)
        self._process.stdout.close()

    def __enter__(self) -> _Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def _write(task: SamplingTask, folder: Path) -> None:
    np.save(folder / "indptr.npy", task.csc[0])
    np.save(folder / "indices.npy", task.csc[1])
    np.save(folder / "seeds.npy", task.seeds)
    if task.weights is not None:
        np.save(folder / "weights.npy", task.weights)
    how = {"fanouts": task.fanouts, "threads": task.threads, "replace": task.replace}
    (folder / "task.json").write_text(json.dumps(how))
