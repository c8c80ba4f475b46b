"""Buffers in front of an ssd tier on images that tests write, fed by one thread and emptied by another."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from striped_rows import Striped

from tiering import native
from tiering.loader.tables.resident import anonymous

ENGINES = [*([] if native.uring_unavailable() else ["io_uring"]), "threads"]

Batch = list[list[int]]
"""Ids of each table."""


def within(seconds: float, work: Callable[[], Any]) -> Any:
    """What `work` returns or raises in a thread of its own; a failure where it does not end."""
    result: list[Any] = []

    def run() -> None:
        try:
            result.append((work(), None))
        except BaseException as error:
            result.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "it hangs"
    value, error = result[0]
    if error is not None:
        raise error
    return value


class Rows:
    """Tables on images and their truth; of each, `cached` rows lie in memory before those on disk."""

    def __init__(self, folder: Path, space: Striped, cached: int = 0) -> None:
        random = np.random.default_rng(space.count)
        self.space, self.cached = space, cached
        self.truth = [
            random.integers(0, 256, (cached + table.rows, table.row_bytes), dtype=np.uint8) for table in space.tables
        ]
        self.paths = space.write(folder, [rows[cached:] for rows in self.truth])
        reader = native.SsdReader(
            [str(path) for path in self.paths],
            space.page_bytes,
            "threads",
            1,
            "off",
            max(table.row_bytes for table in space.tables),
        )
        self.tables = [
            native.TieredTable(
                table.row_bytes, [0, 0, cached, cached + table.rows], None, [], rows[:cached].reshape(-1).copy(),
                reader, table.first_unit, table.stride, table.rows_per_unit, *space.shape,
            )
            for table, rows in zip(space.tables, self.truth, strict=True)
        ]  # fmt: skip

    def buffer(self, slots: dict[int, int], engine: str = "auto", direct: str = "auto", **options: Any) -> Any:
        """A buffer in front of them, whose memory is `arena`; `slots` by bytes of a row, those of a table in a row."""
        self.pools = list(slots.items())
        self.arena = anonymous(max(1, sum(size * number for size, number in self.pools)))
        before = [self.pools[: list(slots).index(table.row_bytes)] for table in self.space.tables]
        self.firsts = [sum(number for _, number in pools) for pools in before]
        self.origins = [sum(size * number for size, number in pools) for pools in before]
        return native.RowBuffer(
            self.space.core, [self.cached] * len(self.tables), self.space.shape, [str(p) for p in self.paths],
            self.pools, self.arena, engine, direct, **options,
        )  # fmt: skip

    def slots(self, batches: Sequence[Batch], spare: int = 0) -> dict[int, int]:
        """Slots that suffice for each batch, and some more."""
        found = dict.fromkeys((table.row_bytes for table in self.space.tables), 0)
        for batch in batches:
            for size in found:
                needed = sum(self.space.row_bytes(row) == size for row in self.on_disk(batch))
                found[size] = max(found[size], needed + spare)
        return found

    def on_disk(self, batch: Batch) -> set[int]:
        """The rows of a batch that are read from disk."""
        return {
            self.space.firsts[t] + one - self.cached for t, ids in enumerate(batch) for one in ids if one >= self.cached
        }

    def gather(self, buffer: Any, batch: int, tables: Any, ids: Any, outs: Any, threads: int = 1) -> None:
        """Fill `outs` with the rows of a batch, part by part."""
        part, last = 0, False
        while not last:
            slots, places, rows, last = buffer.take(batch, part)
            native.gather_from_slots(self.arena, self.pools, slots, places, rows, part == 0, tables, ids, outs, threads)
            buffer.release(batch, part)
            part += 1

    def check_gather(self, buffer: Any, number: int, batch: Batch, threads: int = 1) -> None:
        """The rows of batch `number` are the tables' rows."""
        ids = [np.array(some, np.int64) for some in batch]
        outs = [np.full((one.size, rows.shape[1]), 7, np.uint8) for one, rows in zip(ids, self.truth, strict=True)]
        self.gather(buffer, number, self.tables, ids, outs, threads)
        for one, out, rows in zip(ids, outs, self.truth, strict=True):
            np.testing.assert_array_equal(out, rows[one])


class Epoch:
    """An epoch of a buffer that is fed by a thread of its own; `close` ends it."""

    def __init__(self, buffer: Any, batches: Sequence[Batch], window: int = 2, horizon: int = 2, gap: int = 0) -> None:
        self.buffer, self.batches = buffer, batches
        self.error: BaseException | None = None
        buffer.begin(window, horizon, gap)
        self.feeder = threading.Thread(target=self._feed)
        self.feeder.start()

    def _feed(self) -> None:
        try:
            for batch in self.batches:
                if not self.buffer.add([np.array(ids, np.int64) for ids in batch]):
                    return
            self.buffer.end()
        except BaseException as error:
            self.error = error

    def close(self) -> None:
        """End the epoch, wherever it is."""
        self.buffer.stop()
        self.feeder.join()
        self.buffer.cancel()


def run_epoch(rows: Rows, buffer: Any, batches: Sequence[Batch], upto: int | None = None, **how: int) -> None:
    """An epoch in which all batches, or those before `upto`, are gathered and compared."""

    def work() -> None:
        epoch = Epoch(buffer, batches, **how)
        try:
            for number, batch in enumerate(batches[:upto]):
                rows.check_gather(buffer, number, batch)
        finally:
            epoch.close()
        assert epoch.error is None

    within(60, work)


def random_batches(rows: Rows, number: int, size: int, seed: int = 0) -> list[Batch]:
    """Batches of up to `size` different ids of each table."""
    random = np.random.default_rng(seed)
    return [
        [random.permutation(len(truth))[: random.integers(1, size + 1)].tolist() for truth in rows.truth]
        for _ in range(number)
    ]


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())
