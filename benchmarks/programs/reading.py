"""One cell of ``python -m benchmarks lookahead``, in a process of its own: prints a JSON line.

``python reading.py fit|measure|read|reorder|simulate LAYOUT JSON``: ``loader`` has keywords of `TieredLayout.loader`.
``fit`` finds the memory with which the loader's buffer has room for ``rows``; ``measure`` runs epochs in it for
``seconds``; ``read`` measures the disk and reads alone, for batches that are known; ``reorder`` takes batches in order
and as they are ready; ``simulate`` prices reading the same batches with room for ``slots`` rows, by every policy.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tiering
from tiering.errors import BudgetError
from tiering.memory import own_memory
from tiering.readahead import disk_speed
from tiering.readahead.config import UNLIMITED, ReadaheadConfig, SsdTables
from tiering.readahead.disk_speed import DiskSpeed

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.cache_policies import BUFFERED_WINDOWS, Future, simulate_policies, window_buffering

_CLOSE = 0.03
"""Share by which the room may miss what was asked for."""
_SLOTS = 0.9
"""Fraction of the memory, fixed needs apart, that is buffer slots; the rest is for ids of batches to come."""
_TRIALS = 12
_FEWEST = 12
"""Batches that fill the memory, at least: few batches make one window, whose ends are no steady state."""
_ROUNDS = 3
"""Rounds that are measured at least, and times of `seconds` that they may take."""
_LONGEST = 4
_TURNS = 3
_STEADY = 0.15
"""The disk's figures may change by this share while it is read; if they do by more, reading is measured again."""
_READINGS = 3
_DISK_SECONDS = 0.7
"""Each of the two figures."""
_WINDOWS = 6
"""Windows that are read at least: an epoch's first and last are no steady state."""


def stream(loader: Any) -> Iterator[Any]:
    """Yield the batches of one epoch after the other."""
    while True:
        yield from loader


def room(layout: str, options: dict[str, Any], extra: int) -> float:
    """Return the rows a buffer has room for with `extra` bytes more than the process holds; infinite: all."""
    with tiering.open(layout) as opened:
        loader = opened.loader(**options, memory=own_memory() + extra)
        if loader.lookahead is None:
            return float("inf")
        batches = loader.epoch(0)
        next(batches)
        batches.close()
        return float(sum(slots for _, slots in loader.lookahead.buffer.pools))


def fit(layout: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return the bytes of memory in addition to what the process holds; or a `note` that says why there are none.

    ``fixed``: what a buffer needs in addition to its slots, where that is known from another size.
    """
    options, wanted = asked["loader"], asked["rows"]
    with tiering.open(layout) as opened:
        slot = (SsdTables.of(opened.artifact, opened.feature_types).rows[0][1] + 8) / _SLOTS
    held, note = own_memory(), ""
    extra = int(wanted * slot) + asked.get("fixed", 64 << 20)
    low, high = 0, 0  # so much is too little; so much holds all rows, if it is not 0
    for _ in range(_TRIALS):
        try:
            rows = room(layout, options, extra)
        except BudgetError as error:
            low, note = extra, f"a batch does not fit: {error}"
            extra = (low + high) // 2 if high else int(1.3 * extra)
            continue
        if rows == float("inf"):
            high, note = extra, "all rows fit into the memory that so large a buffer needs"
            extra = (low + high) // 2
            continue
        if abs(rows - wanted) <= _CLOSE * wanted:
            return {"extra": extra, "limit": held + extra, "rows": rows, "fixed": extra - int(rows * slot)}
        extra += int((wanted - rows) * slot)
        if extra <= low:
            return {"note": note}
    return {"note": note or "no memory gives a buffer of this size"}


def measure(layout: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return seconds a batch: of sampling alone; of the loader once its buffer was filled or an epoch is over.

    ``buffer`` and what follows it are not there where all rows are in memory.
    """
    options, seconds = asked["loader"], asked["seconds"]
    torch.zeros(1)
    with tiering.open(layout) as opened:
        sampling = opened.loader(**{**options, "features": None})
        sampled = stream(sampling)
        for _ in range(int(sampling.options.pipeline.workers) + 1):
            next(sampled)
        per_sample = timed(sampled, seconds / 3, lambda: True)[0]
        sampled.close()
        loader = opened.loader(**options, memory=own_memory() + asked["extra"])
        batches = stream(loader)
        for done, _ in enumerate(batches, 1):
            ahead = loader.lookahead
            if done >= len(loader) or not ahead or _is_filled(ahead.buffer):
                break
        loader.reset_counters()
        enough = (lambda: ahead.buffer.core.counters.rounds >= _ROUNDS) if ahead else lambda: True
        per_batch, count, elapsed = timed(batches, seconds, enough)
        counters, stats = ahead.buffer.counters() if ahead else {}, loader.stats()
        batches.close()
        found = {
            "sampling": per_sample, "loader": per_batch, "batches": count, "elapsed": elapsed,
            "bound_by": stats.bound_by, "stats": stats.as_dict(),
        }  # fmt: skip
        if not ahead:
            return found
        return found | {
            "images": ahead.tables.images, "slots": sum(slots for _, slots in ahead.buffer.pools),
            "buffer": counters, "choice": asdict(ahead.choice), "speed": asdict(ahead.speed),
            "row_bytes": ahead.tables.rows[0][1], "rows": ahead.tables.num_rows,
        }  # fmt: skip


def _is_filled(buffer: Any) -> bool:
    return bool(buffer.core.counters.missed >= sum(slots for _, slots in buffer.pools))


def reorder(layout: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return seconds a batch in order and as batches are ready, in turns: each reads by itself, then read ahead."""
    options, found = {**asked["loader"], "workers": 3}, {}
    with tiering.open(layout) as opened:
        for kind in ("", "ahead_"):
            memory = own_memory() + asked["extra"] if kind else "tiers"
            turns = {"in_order": list[float](), "ready": list[float]()}
            made = {way: opened.loader(**options, memory=memory, in_order=way == "in_order") for way in turns}
            for _ in range(_TURNS):
                for way, loader in made.items():
                    batches = stream(loader)
                    next(batches)
                    turns[way].append(timed(batches, asked["seconds"] / _TURNS, lambda: True)[0])
                    batches.close()
            found |= {kind + way: float(np.median(seconds)) for way, seconds in turns.items()}
    return found


def timed(batches: Iterator[Any], seconds: float, enough: Any) -> tuple[float, int, float]:
    """Return seconds a batch, batches, seconds in all: after `seconds`, once it is `enough`."""
    start, count = time.perf_counter(), 0
    while True:
        next(batches)
        count, elapsed = count + 1, time.perf_counter() - start
        if elapsed > _LONGEST * seconds or (elapsed > seconds and enough()):
            return elapsed / count, count, elapsed


def sampled(layout: Any, options: dict[str, Any], tables: SsdTables, slots: int, fewest: int) -> list[dict[str, Any]]:
    """Return the ids of the first batches, by type: a third of them, and `fewest` at least, fills the memory."""
    batches: list[dict[str, Any]] = []
    seen, used, goal = np.zeros(tables.num_rows, bool), 0, 0
    for batch in stream(layout.loader(**{**options, "features": None})):
        batches.append({t: np.asarray(ids) for t, ids in batch.nodes.items()})
        rows = tables.among(batches[-1])
        seen[rows] = True
        used += rows.size
        if not goal and (np.count_nonzero(seen) >= slots or used >= 3 * slots):
            goal = 3 * max(len(batches), fewest)
        if len(batches) == goal:
            return batches
    raise AssertionError("a stream has no end")


def read(layout: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return seconds a batch of reading alone: ids are known, and slots are free as soon as a batch's rows are there.

    The disk is measured, then the loader plans by these figures. A first epoch fills the buffer; the second, of twice
    as many batches, is timed whole. Then the disk is measured again. Of several readings the one counts in which the
    disk changed least.
    """
    options, model = asked["loader"], Path(asked["loader"]["ssd_model"])
    best: dict[str, Any] = {}
    with tiering.open(layout) as opened:
        images = [Path(path) for path in opened.artifact.image_places]
        for _ in range(_READINGS):
            before = measured_speed(images, model)
            loader = opened.loader(**options, memory=own_memory() + asked["extra"])
            first = loader.epoch(0)
            next(first)
            first.close()
            ahead = loader.lookahead
            slots = sum(count for _, count in ahead.buffer.pools)
            batches = sampled(
                opened, options, ahead.tables, slots, max(_FEWEST, batches_of(ahead.choice) * _WINDOWS // 2)
            )
            fill = len(batches) // 3
            read_known(ahead, batches[:fill])
            ahead.buffer.core.reset_counters()
            seconds, counters = read_known(ahead, batches[fill:]), ahead.buffer.counters()
            after = asdict(measured_speed(images))
            change = max(abs(after[name] / figure - 1) for name, figure in asdict(before).items())
            if not best or change < best["change"]:
                best = {
                    "seconds": seconds / (len(batches) - fill), "fewest": fill, "batches": len(batches) - fill,
                    "slots": slots, "choice": asdict(ahead.choice), "buffer": counters, "speed": asdict(before),
                    "change": change,
                }  # fmt: skip
            if change < _STEADY:
                break
    model.write_text(json.dumps(best["speed"]))
    return best


def batches_of(choice: ReadaheadConfig) -> int:
    """Return the batches of a window; none where it takes as many as there is room for."""
    return 0 if choice.window >= UNLIMITED else int(choice.window / choice.parts)


def measured_speed(images: list[Path], model: Path | None = None) -> DiskSpeed:
    """Measure the disk's figures of this moment, which are kept in `model`."""
    speed = disk_speed.measure(images, _DISK_SECONDS)
    if model is not None:
        model.write_text(json.dumps(asdict(speed)))
    return speed


def read_known(ahead: Any, batches: list[dict[str, Any]]) -> float:
    """Return the seconds of an epoch of these batches."""
    with ahead.buffer.epoch(ahead.choice) as core:

        def feed() -> None:
            if all(core.add([ids[t] for t in ahead.tables.types]) for ids in batches):
                core.end()

        feeder = threading.Thread(target=feed)
        start = time.perf_counter()
        feeder.start()
        try:
            for number in range(len(batches)):
                core.wait(number)
            return time.perf_counter() - start
        finally:
            core.stop()
            feeder.join()


def simulate(layout: str, asked: dict[str, Any]) -> dict[str, Any]:
    """Return seconds a batch by policy; with ``hits`` the share of rows that GIDS's windows find in memory."""
    options, slots = asked["loader"], asked["slots"]
    with tiering.open(layout) as opened:
        tables = SsdTables.of(opened.artifact, opened.feature_types)
        batches = [np.sort(tables.among(ids)) for ids in sampled(opened, options, tables, slots, asked["fewest"])]
    counted = batches[len(batches) // 3 :]
    found: dict[str, Any] = {"batches": len(batches), "rows_per_batch": float(np.mean([len(rows) for rows in batches]))}
    if asked.get("hits"):
        future, total = Future(batches, tables.num_rows), sum(map(len, counted))
        found["gids_hits"] = {}
        for window in BUFFERED_WINDOWS:
            missing = [len(rows) for rows in window_buffering(future, slots, window, 0)]
            found["gids_hits"][window] = 1 - sum(missing[-len(counted) :]) / total
        return found
    speed = disk_speed.read_speed(Path(options["ssd_model"]))
    return found | {"policies": simulate_policies(tables, speed, batches, slots, 0)}


if __name__ == "__main__":
    torch.zeros(1)
    work = {"fit": fit, "measure": measure, "read": read, "reorder": reorder, "simulate": simulate}[sys.argv[1]]
    print(json.dumps(work(sys.argv[2], json.loads(sys.argv[3]))))
