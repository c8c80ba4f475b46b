"""Epochs that look ahead and end early, overlap, fork or fail: nothing hangs, nothing is left, the next one works."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
import threading
import time
from typing import Any

import numpy as np
import pytest
from child_process import Child, in_child
from epochs import nothing_left, rows, same, truth
from tight_memory import tight_loader

from tiering.errors import CapabilityError, FormatError, StorageError
from tiering.loader.batches.pipeline import StageError

pytestmark = [
    pytest.mark.usefixtures("watchdog"),
    pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning"),
]


@pytest.fixture
def loader(layout: Any, options: dict[str, Any], engine: str) -> Any:
    """A loader of each engine, with room for little more than a batch."""
    return tight_loader(layout, 30, engine=engine, **options)


@pytest.fixture
def one_loader(layout: Any, options: dict[str, Any]) -> Any:
    """The same of the engine that is taken here, where others do not differ."""
    return tight_loader(layout, 30, **options)


def test_a_break(loader, layout, options):
    with nothing_left(loader):
        for stop in (0, 3):
            for batch in loader.epoch(1):
                if batch.index == stop:
                    break
        del batch
    assert same(rows(loader.epoch(1)), truth(layout, options, 1))


def test_a_break_while_sampling_is_far_ahead_of_extraction(layout, options, monkeypatch):
    """Samples wait for batches to be read that wait for slots, which nobody will give back."""
    loader = tight_loader(layout, 0, **{**options, "prefetch": 12})
    plain, entered = loader.lookahead.gather, threading.Event()

    def slow(batch: int, *given: Any) -> None:
        if batch == 1:
            entered.set()
            time.sleep(0.3)
        plain(batch, *given)

    with nothing_left(loader):
        monkeypatch.setattr(loader.lookahead, "gather", slow)
        epoch = loader.epoch(0)
        next(epoch)
        entered.wait()
        epoch.close()
        monkeypatch.undo()
    assert same(rows(loader.epoch(0)), truth(layout, options, 0))


def test_an_epoch_within_an_epoch(loader, layout, options, caplog):
    """Of the same loader: the inner one reads its batches by itself. Of another one: both look ahead."""
    val = tight_loader(layout, 30, split="val", engine=loader.options.reading.engine, **options)
    inner, val_inner, outer = [], [], []
    list(zip(val.epoch(9), loader.epoch(7), loader.epoch(8), strict=False))  # what stays open is opened
    with nothing_left(loader):
        for batch in loader.epoch(0):
            outer.append(batch.x.numpy().copy())
            if batch.index in (2, 7):
                inner.append(rows(loader.epoch(5)))
                val_inner.append(rows(val.epoch(1)))
    assert "another epoch uses the buffer" in caplog.text
    assert same(outer, truth(layout, options, 0))
    assert all(same(found, truth(layout, options, 5)) for found in inner)
    assert all(same(found, truth(layout, options, 1, split="val")) for found in val_inner)


def test_epochs_in_threads(one_loader, layout, options):
    found: dict[int, list[np.ndarray]] = {}
    threads = [threading.Thread(target=lambda e=e: found.update({e: rows(one_loader.epoch(e))})) for e in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(same(found[e], truth(layout, options, e)) for e in range(4))


def test_a_layout_closed_in_the_middle_is_an_error(one_loader, layout):
    epoch = one_loader.epoch(0)
    next(epoch)
    layout.close()
    with pytest.raises(StageError, match="the features were closed"):
        list(epoch)


def test_a_fork_in_the_middle(loader, layout, options):
    expected = [truth(layout, options, e) for e in range(3)]
    epoch = loader.epoch(0)
    first = rows([next(epoch)])
    time.sleep(0.1)  # readers wait now
    epochs = [epoch]

    def child(forget: bool) -> bool:
        with pytest.raises(CapabilityError, match="started by another process"):
            next(epochs[0])
        if forget:
            epochs.clear()
            gc.collect()
        good = same(rows(loader.epoch(1)), expected[1])
        epochs.clear()
        gc.collect()
        return good and same(rows(loader.epoch(2)), expected[2])

    for forget in (True, False):
        assert in_child(lambda forget=forget: child(forget))
    assert same(first + rows(epoch), expected[0])
    assert same(rows(loader.epoch(1)), expected[1])


def test_forks_between_epochs_that_read_at_the_same_time(loader, layout, options):
    """Outputs, slots and what a buffer holds already are each process's own."""
    expected = [truth(layout, options, e) for e in range(3)]
    list(loader.epoch(0))

    def read() -> bool:
        return all(same(rows(loader.epoch(e)), expected[e]) for e in range(3))

    children = [Child(read) for _ in range(3)]
    assert read()
    assert [child.result() for child in children] == [True] * 3


SCRIPT = """
    import json, os, pathlib, sys, time
    from tight_memory import tight_loader
    import tiering
    layout = tiering.open(sys.argv[1])
    disk = pathlib.Path(sys.argv[1] + ".json")
    disk.write_text(json.dumps({"reads_per_second": 1e5, "bytes_per_second": 1e9}))
    loader = tight_loader(
        layout, 30, batch_size=8, fanouts=[3, 2], depth=4, ssd_model=disk, window=1, prefetch=int(sys.argv[2]),
        direct="off",
    )
    lingering = iter(loader)
    next(lingering)
"""


@pytest.mark.parametrize(("prefetch", "end"), [(14, ""), (2, "time.sleep(0.2); raise SystemExit(0)")])
def test_an_interpreter_that_ends_in_the_middle(layout, prefetch, end):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT) + end, layout.path, str(prefetch)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert "terminate" not in done.stderr and "Traceback" not in done.stderr


def test_an_image_that_shrinks(loader, layout, options):
    """The error names the image; where the file is whole again, the next epoch works."""
    image = layout.artifact.images[1]
    whole = image.read_bytes()
    expected = truth(layout, options, 2)
    with nothing_left(loader):
        epoch = loader.epoch(1)
        next(epoch)
        os.truncate(image, 0)
        with pytest.raises(StageError, match="extraction failed: StorageError") as caught:
            list(epoch)
        assert isinstance(caught.value.__cause__, StorageError)
        assert "the file was truncated: make it again" in str(caught.value) and image.name in str(caught.value)
        with pytest.raises(StageError, match="the file was truncated"):
            list(loader.epoch(2))
        with image.open("r+b") as file:
            file.write(whole)
        del caught, epoch
    assert same(rows(loader.epoch(2)), expected)


def test_damage_met_ahead_of_its_batch(layout, options, engine):
    loader = tight_loader(layout, 30, engine=engine, verify=True, **options)
    list(loader.epoch(0))
    for image in layout.artifact.images:
        data = np.fromfile(image, np.uint8)
        data[::4096] ^= 1
        data.tofile(image)
    message = r"epoch 1, batch \d+: extraction failed: FormatError: .*ssd-\d-of-2: page \d+ .* is damaged: .* 'node'"
    with pytest.raises(StageError, match=message) as caught:
        list(loader.epoch(1))
    assert isinstance(caught.value.__cause__, FormatError)


@pytest.mark.parametrize("failing", [0, 1, 7, 14])
def test_a_sampler_that_fails(one_loader, layout, options, failing, monkeypatch):
    """The error comes in the place of its batch, though it was met ahead of it."""
    plain = one_loader.node_sampler.sample
    list(one_loader.epoch(0))

    def sample(seeds: Any, *, epoch: int, batch: int, **more: Any) -> Any:
        if batch == failing:
            raise LookupError("no such node")
        return plain(seeds, epoch=epoch, batch=batch, **more)

    found: list[np.ndarray] = []
    with nothing_left(one_loader), monkeypatch.context() as patch:
        patch.setattr(one_loader.node_sampler, "sample", sample)
        with pytest.raises(StageError, match=f"epoch 1, batch {failing}: sampling failed: LookupError") as caught:
            found.extend(batch.x.numpy().copy() for batch in one_loader.epoch(1))
        assert isinstance(caught.value.__cause__, LookupError)
        del caught
    assert same(found, truth(layout, options, 1)[:failing])
    assert same(rows(one_loader.epoch(1)), truth(layout, options, 1))
