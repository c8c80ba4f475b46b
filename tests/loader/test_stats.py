"""What a loader says it did."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tiering.loader.batches.stats import LoaderStats


def test_rows_come_from_where_they_lay(kit: Any, build: Any) -> None:
    layout = build(kit.small_graph())
    loader = layout.loader(batch_size=64, fanouts=(5,), memory="tiers")
    rows = sum(len(batch.x) for batch in loader)
    stats = loader.stats()
    table = layout.features()
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


def test_a_slow_consumer_is_what_an_epoch_is_bound_by(kit: Any, build: Any) -> None:
    loader = build(kit.small_graph()).loader(batch_size=64, fanouts=(5,))
    for _ in loader:
        time.sleep(0.2)
    stats = loader.stats()
    assert stats.seconds["training"] > 0.2 * (len(loader) - 1)
    assert stats.bound_by == "training"
    assert "bound by: training" in stats.line()


@pytest.mark.parametrize(
    ("seconds", "answer"),
    [
        ({"waiting": 9.0, "sampling": 4.0, "extraction": 8.0, "disk": 7.0}, "disk"),
        ({"waiting": 9.0, "sampling": 4.0, "extraction": 8.0, "disk": 1.0}, "copying"),
        ({"waiting": 9.0, "sampling": 18.0, "extraction": 8.0, "disk": 7.0}, "sampling"),
        ({"waiting": 0.1, "sampling": 18.0, "extraction": 8.0, "disk": 7.0}, "training"),
    ],
)
def test_what_an_epoch_is_bound_by(seconds: dict[str, float], answer: str) -> None:
    rows = {"gpu": 0, "peer": 0, "cpu": 6, "ssd": 2, "read": 2}
    stats = LoaderStats(5, rows, 100, {"training": 10.0, "copying": 0.0, **seconds}, 3, 80, None, workers=2)
    assert stats.bound_by == answer
    assert stats.hit_rates["read"] == 0.2
    assert stats.read_per_used == 4.0
    assert f"bound by: {answer}" in stats.table()
