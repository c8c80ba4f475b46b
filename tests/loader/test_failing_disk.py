"""A block device that answers EIO, read by io_uring and by threads with O_DIRECT: right rows or a `StorageError` that
names file and offset, no hang, and right rows again once the device works.

The kernel refuses the reads: the stripe file lies on a loop device whose own file was cut.
"""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from campaign import Campaign
from epochs import rows, same, small_batches, truth
from loop_disk import PAGE, LoopDisk, loop_disk
from row_buffers import within
from tight_memory import tight_loader, wide_graph

import tiering
from tiering import native
from tiering.errors import StorageError
from tiering.loader.batches.pipeline import StageError

ENGINES = ("io_uring", "threads")
SECONDS = 60
"""After which a read counts as hanging."""


class FailingLayout:
    """A layout with rows of a page each, on two disks of which the second can fail."""

    def __init__(self, kit: Any, folder: Path, disk: LoopDisk) -> None:
        data = wide_graph(kit, images=2)
        kit.write_layout(folder / "layout", data).close()
        disk.seal()
        self.disk, self.layout = disk, tiering.open(folder / "layout")
        self.truth = np.ascontiguousarray(data.nodes["node"].table[data.order("node")])
        self.file = self.layout.artifact.images[1]
        content = self.file.read_bytes()
        self.pages = {content[at : at + PAGE]: at // PAGE for at in range(0, len(content), PAGE)}
        self.places = sorted(disk.place_of(page) for page in self.pages)
        self.options = small_batches(folder)
        self.epochs = [truth(self.layout, self.options, epoch) for epoch in range(3)]
        self.loaders = {engine: tight_loader(self.layout, 30, engine=engine, **self.options) for engine in ENGINES}

    def page_of(self, row: int) -> int | None:
        """The page of a row on the disk that fails."""
        return self.pages.get(self.truth[row].tobytes())

    def cut(self, rng: random.Random) -> int:
        """A byte of the device, in the stripe file or behind it."""
        return rng.choice([*self.places, self.places[-1] + PAGE]) + rng.choice([0, 0, 512, 2048])

    def judge(self, error: BaseException, bad: set[int]) -> None:
        """The error is EIO of a read that has a bad page in it."""
        assert isinstance(error, StorageError) and error.errno == errno.EIO, repr(error)
        words = rf"{re.escape(str(self.file))}: reading (\d+) bytes at byte (\d+): Input/output error$"
        found = re.search(words, str(error))
        assert found, error
        size, offset = int(found[1]), int(found[2])
        assert bad & set(range(offset // PAGE, -(-(offset + size) // PAGE))), f"{error}; bad pages {sorted(bad)[:9]}.."

    def gather(self, rng: random.Random, engine: str) -> str:
        """Gather rows while the disk fails, then while it works."""
        options = {"engine": engine, "depth": rng.choice([1, 4, 32]), "verify": rng.random() < 0.3}
        ids = np.array([rng.randrange(len(self.truth)) for _ in range(rng.choice([1, 3, 30, 400]))])
        table = self.layout.features(**options)
        with self.disk.failing(self.cut(rng)):
            bad = self.disk.bad_pages(self.file)
            needed = bad & {self.page_of(row) for row in ids.tolist()}
            try:
                found = within(SECONDS, lambda: table.gather_numpy(ids))
            except StorageError as error:
                self.judge(error, bad)
                outcome = "gathers refused"
            else:
                assert not needed, f"rows of pages {sorted(needed)} were gathered though they cannot be read"
                assert np.array_equal(found, self.truth[ids])
                outcome = "gathers without a bad page"
        assert np.array_equal(table.gather_numpy(ids), self.truth[ids]), "after the repair"
        return outcome

    def epoch(self, rng: random.Random, engine: str) -> str:
        """Read batches, some before the disk fails, some while it does; then an epoch while it works."""
        loader, number = self.loaders[engine], rng.randrange(3)
        expected, batches = self.epochs[number], loader.epoch(number)
        found = []
        for _ in range(rng.randrange(4)):
            found += rows([next(batches)])
        outcome = "epochs without a bad page"
        with self.disk.failing(self.cut(rng)):
            bad = self.disk.bad_pages(self.file)
            try:
                for batch in iter(lambda: within(SECONDS, lambda: next(batches, None)), None):
                    found += rows([batch])
            except StageError as error:
                assert error.__cause__ is not None
                self.judge(error.__cause__, bad)
                outcome = "epochs ended by an error"
        assert same(found, expected[: len(found)])
        assert len(found) == len(expected) or outcome == "epochs ended by an error"
        assert same(rows(loader.epoch(number)), expected), "after the repair"
        return outcome

    def check(self, rng: random.Random, engine: str) -> str:
        """`tiering check --full` says which file cannot be read."""
        with self.disk.failing(self.cut(rng)):
            bad, problems = self.disk.bad_pages(self.file), []
            try:
                problems = [str(problem) for problem in tiering.check(self.layout.path, "full")]
            except StorageError as error:
                problems = [str(error)]
        assert bool(problems) == bool(bad), f"{problems}; bad pages {sorted(bad)[:9]}.."
        assert all(str(self.file) in problem and "Input/output error" in problem for problem in problems), problems
        return "checks refused" if bad else "checks passed"

    def trial(self, rng: random.Random) -> str:
        """One of these, by one of the engines."""
        engine = rng.choices(ENGINES, [3, 1])[0]
        kind = rng.choices([self.gather, self.epoch, self.check], [6, 3, 1])[0]
        return f"{kind(rng, engine)} by {engine}"

    def close(self) -> None:
        """Close all that holds the disk."""
        self.layout.close()


@pytest.fixture
def failing(kit: Any, tmp_path: Path) -> Iterator[FailingLayout]:
    if reason := native.uring_unavailable():
        pytest.skip(reason)
    with loop_disk(tmp_path / "device", tmp_path / "layout-images-1", 8 << 20) as disk:
        layout = FailingLayout(kit, tmp_path, disk)
        try:
            yield layout
        finally:
            layout.close()


@pytest.mark.slow
def test_a_device_that_fails(failing):
    for number in range(6):
        failing.gather(random.Random(number), ENGINES[number % 2])
    failing.epoch(random.Random(6), "io_uring")


@pytest.mark.long
def test_eio(failing):
    Campaign("eio").run(failing.trial)
