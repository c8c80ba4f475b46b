"""What a loader says it did."""

from __future__ import annotations

import json
import time
from types import SimpleNamespace
from typing import Any

import pytest
from tight_memory import tight_loader

from tiering.loader.batches import pipeline
from tiering.loader.stats import Counters, LoaderStats, collect


def test_rows_come_from_where_they_lay(kit: Any, build: Any) -> None:
    layout = build(kit.small_graph())
    loader = layout.loader(batch_size=64, fanouts=(5,), memory="tiers", direct="off")
    rows = sum(len(batch.x) for batch in loader)
    stats = loader.stats()
    table = layout.features(direct="off")
    assert stats.batches == len(loader)
    assert sum(stats.rows.values()) == rows
    assert stats.bytes == rows * table.row_bytes
    assert stats.rows["ssd"] == 0  # each batch reads its own
    assert stats.rows["read"] == table.counters.tiers["ssd"].rows > 0
    assert stats.read_bytes == table.counters.ssd_read_bytes
    assert stats.reads == table.counters.ssd_reads
    assert json.loads(json.dumps(stats.as_dict()))["batches"] == len(loader)
    loader.reset_counters()
    assert loader.stats().batches == sum(loader.stats().rows.values()) == 0
    assert loader.stats().bound_by == "nothing"


def test_rows_held_in_memory_are_not_read(kit: Any, build: Any) -> None:
    loader = build(kit.small_graph()).loader(batch_size=64, fanouts=(5,))
    list(loader)
    stats = loader.stats()
    assert stats.rows["read"] == stats.reads == stats.read_bytes == 0
    assert stats.rows["ssd"] > 0
    assert stats.buffer is None


def test_rows_that_were_read_for_no_batch_are_not_among_those_served() -> None:
    """Of an epoch that is broken off the buffer has read more than batches took."""
    counters = Counters()
    counters.add_tally([1, 2, 3, 4], row_bytes=8, gathers=1)
    buffer = {"reads": 2, "read_bytes": 4096, "rows_read": 9, "wait_seconds": 0.0}
    found = collect(pipeline.StageTimes(), {"node": counters.as_dict()}, buffer)
    assert found.rows == {"gpu": 1, "peer": 2, "cpu": 3, "ssd": 0, "read": 4}
    assert (found.bytes, found.read_per_used) == (80, 128.0)


NONE = dict.fromkeys(("training", "setup", "sampling", "disk", "copying", "assembling", "conversion"), 0.0)


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [
        ({"training": 3.0, "sampling": 4.0, "disk": 7.0, "copying": 1.0}, "disk"),
        ({"training": 3.0, "sampling": 4.0, "disk": 1.0, "copying": 2.0, "assembling": 3.0}, "assembling"),
        ({"training": 3.0, "sampling": 4.0, "disk": 1.0, "copying": 6.0}, "copying"),
        ({"training": 3.0, "sampling": 18.0, "disk": 7.0, "copying": 1.0}, "sampling"),  # two threads sample
        ({"training": 10.0, "sampling": 18.0, "disk": 7.0, "copying": 1.0}, "training"),
        ({"training": 7.5, "disk": 5.0, "copying": 3.0}, "disk"),  # one thread reads and copies: 8 s
        ({"training": 1.0, "conversion": 2.0}, "conversion"),
        ({"training": 1.0, "setup": 2.0}, "setup"),
        ({"training": 1.0}, "handover"),
    ],
)
def test_what_an_epoch_is_bound_by(seconds: dict[str, float], answer: str) -> None:
    rows = {"gpu": 0, "peer": 0, "cpu": 6, "ssd": 2, "read": 2}
    waited = {**dict.fromkeys(("sampling", "disk", "copying", "assembling", "conversion"), 0.0), "handover": 1.5}
    threads = {"sampling": 2, "extraction": 1, "conversion": 1}
    stats = LoaderStats(5, rows, 100, {**NONE, **seconds}, waited, 9.0, 3, 80, None, threads)
    assert stats.bound_by == answer
    assert stats.hit_rates["read"] == 0.2
    assert stats.read_per_used == 4.0
    assert f"bound by: {answer}" in stats.table()


class Clock:
    """Seconds that pass only when somebody says so, whatever the machine does meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(pipeline, "time", SimpleNamespace(perf_counter=lambda: self.now))

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("slow", ["sampling", "gathering", "conversion", "training"])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("workers", [1, 4])
def test_the_parts_add_up_to_the_wall_time(
    kit: Any, build: Any, monkeypatch: Any, slow: str, in_order: bool, workers: int
) -> None:
    """Whatever sleeps is found, in its own seconds; with one batch at a time also in those that training waited for."""
    pytest.importorskip("torch_geometric")
    clock, asleep = (Clock(monkeypatch), 8.0) if workers == 1 else (time, 0.005)

    def sleeper(function: Any) -> Any:
        return lambda *args, **keywords: (clock.sleep(asleep), function(*args, **keywords))[1]

    layout = build(kit.small_graph())
    rows = layout.features()
    table = type("Table", (), {"gather": staticmethod(sleeper(rows.gather) if slow == "gathering" else rows.gather)})()
    loader = layout.pyg_loader(
        None, [3], batch_size=20, features=table, in_order=in_order, workers=workers, prefetch=0,
        transform=sleeper(lambda batch: batch) if slow == "conversion" else None,
    )  # fmt: skip
    if slow == "sampling":
        monkeypatch.setattr(loader.node_sampler, "sample", sleeper(loader.node_sampler.sample))
    start = time.perf_counter()
    for _ in range(2):
        for _ in loader:
            clock.sleep(asleep if slow == "training" else 0)
    wall = time.perf_counter() - start
    stats, stage = loader.stats(), {"gathering": "assembling"}.get(slow, slow)
    parts = [stats.seconds["training"], stats.seconds["setup"], *stats.waited.values()]
    assert sum(parts) == pytest.approx(stats.wall, rel=1e-3, abs=1e-3) and min(parts) >= 0
    slept = asleep * 2 * len(loader)
    if workers > 1:
        assert stats.seconds[stage] >= slept
        assert stats.wall <= wall
        return
    assert {name: seconds for name, seconds in stats.seconds.items() if seconds} == {stage: slept}
    assert {name: seconds for name, seconds in stats.waited.items() if seconds} == (
        {} if slow == "training" else {stage: slept}
    )
    assert stats.wall == slept and stats.bound_by == stage


def test_sampling_ahead_is_counted_where_it_is_done(layout: Any, options: Any, monkeypatch: Any) -> None:
    """With rows that are read ahead the stage that hands samples on waits; the threads that draw them work."""
    loader = tight_loader(layout, **{**options, "workers": 1})
    draw = loader.node_sampler.sample
    monkeypatch.setattr(loader.node_sampler, "sample", lambda *a, **k: (time.sleep(0.03), draw(*a, **k))[1])
    assert loader.lookahead is not None
    for batch in loader:
        assert batch.x is not None
    stats = loader.stats()
    assert stats.seconds["sampling"] >= 0.03 * len(loader)
    assert stats.buffer is not None
    assert stats.seconds["disk"] <= stats.wall


def test_an_epoch_that_is_broken_off_and_counted_anew(kit: Any, build: Any, monkeypatch: Any) -> None:
    loader, clock = build(kit.small_graph()).loader(batch_size=20, fanouts=(3,)), Clock(monkeypatch)
    for place, _ in enumerate(loader):
        clock.sleep(2)
        if place == 1:
            loader.reset_counters()
        if place == 3:
            break
    clock.sleep(100)  # between epochs nothing is counted
    loader([3, 1])
    stats = loader.stats()
    assert (stats.batches, stats.seconds["setup"], stats.seconds["training"], stats.wall) == (3, 0, 4, 4)
