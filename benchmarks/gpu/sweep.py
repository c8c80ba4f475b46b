"""The gather from host memory, swept: one or two settings at a time are moved away from a base point.

The product of all settings would take hours. The base point is what training does: `Case` without arguments. For
each case as many bytes are copied from the same memory. ``--sweep-out FILE`` keeps each case as soon as it is measured,
and a later run goes on from there.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import astuple, dataclass, replace
from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np

from benchmarks.gpu.host_memory import HUGE, SMALL, PinnedRows, describe_pages
from benchmarks.gpu.rows import ROW_BYTES, Gathers, RowTask, copy_slices
from benchmarks.gpu.side import GpuSide, gigabytes
from benchmarks.harness import Sizes, Spent, Table
from benchmarks.pages import describe_machine, keep_results, write_json
from tiering.errors import BudgetError, TieringError
from tiering.memory import available_memory
from tiering.text.units import format_bytes

SMS = (4, 8, 13, 26, 0)
THREADS = (256, 1024)
SOME_ROWS = (512, 1024, 4096)
LARGE = 16
"""Times ``--size``: the large table, 64 GiB, where half of the memory that is free at the beginning has room for it."""
HEADS = ["row bytes", "SMs", "threads", "hint", "ids", "table", "pages", "on huge pages", "GB/s", "least GB/s",
         "most GB/s", "copy GB/s", "share of copy"]  # fmt: skip
_PASS_BYTES, _BATCH_BYTES = 1 << 30, 128 << 20


@dataclass(frozen=True)
class Case:
    """How rows are gathered; the defaults are the base point, with the multiprocessors of ``--sms``."""

    row_bytes: int = 1024
    sms: int = 0
    """Multiprocessors that may be used; 0: all."""
    threads: int = 256
    streaming: bool = True
    ids: str = "scrambled"
    large: bool = False
    pages: str = HUGE

    @property
    def name(self) -> str:
        """Key of the case in the results."""
        return " ".join(map(str, astuple(self)))


def plan(sms: int, multiprocessors: int) -> list[Case]:
    """Return cases around the base point with `sms` multiprocessors, those of one table side by side."""
    base = Case(sms=sms)
    bounds = [n for n in SMS if n < multiprocessors]
    orders = ("scrambled", "ascending")
    cases = [base]
    cases += [replace(base, row_bytes=size, sms=n) for size, n in product(ROW_BYTES, bounds)]
    cases += [replace(base, threads=THREADS[1], sms=n) for n in bounds]
    cases += [replace(base, threads=THREADS[1], row_bytes=size) for size in SOME_ROWS]
    cases += [replace(base, streaming=False, row_bytes=size) for size in SOME_ROWS]
    cases.append(replace(base, streaming=False, ids="ascending"))
    cases += [replace(base, ids="ascending", row_bytes=size) for size in ROW_BYTES]
    for large, pages in ((False, SMALL), (True, HUGE), (True, SMALL)):
        cases += [replace(base, row_bytes=size, ids=ids, large=large, pages=pages)
                  for size, ids in product(SOME_ROWS, orders)]  # fmt: skip
    cases.append(replace(base, large=True, streaming=False))
    return sorted(dict.fromkeys(cases), key=lambda case: (case.large, case.pages))


def sweep(sizes: Sizes) -> Table:
    """Measure every case of `plan`; failures are listed below the table, and tried again by the next run."""
    gpu = GpuSide(sizes)
    machine, path = describe_machine(gpu=True), sizes.sweep_out
    document = keep_results(path, machine, _works(gpu, plan(gpu.sms, gpu.multiprocessors)))
    results = document["results"]
    missing = {name: found for name, found in results.items() if isinstance(found, str)}
    document["results"] = {name: found for name, found in results.items() if name not in missing}
    if missing and path is not None:
        write_json(path, document)
    for name, reason in missing.items():
        print(f"gpu-sweep: {name}: not measured: {reason}", file=sys.stderr)
    about = {**describe_pages(), "of_sms": gpu.multiprocessors, "repeats": sizes.repeats}
    reasons = sorted(set(missing.values()))
    return Table("gpu-sweep", about | {"not_measured": reasons}, HEADS, list(document["results"].values()))


def _works(gpu: GpuSide, cases: Iterable[Case]) -> Iterator[tuple[str, Any]]:
    tables = _Tables(gpu)
    for case in cases:
        yield case.name, partial(_measured, gpu, tables, case)


class _Tables:
    """Host memory to gather from: one table at a time, made when a case asks for it."""

    def __init__(self, gpu: GpuSide) -> None:
        self._gpu = gpu
        size = gpu.sizes.image_bytes
        self.large_bytes = max(2, min(LARGE, available_memory() // 2 // size)) * size
        self._key: tuple[bool, str] | None = None
        self._held: PinnedRows | None = None
        self.huge_share: float | None = None

    def of(self, case: Case, nbytes: int) -> PinnedRows:
        """Return the table of a case; `BudgetError` where memory is short, or cannot be locked."""
        if self._held is None or self._key != (case.large, case.pages):
            self._held = None  # goes before the next one comes
            if (free := available_memory()) < 1.1 * nbytes:
                raise BudgetError(f"a table of {format_bytes(nbytes)}: {format_bytes(free)} of host memory are free")
            self._held = PinnedRows(self._gpu.device, nbytes, self._gpu.sizes.seed, case.pages)
            self._key, self.huge_share = (case.large, case.pages), self._held.huge_share()
        return self._held


def _measured(gpu: GpuSide, tables: _Tables, case: Case) -> list[Any] | str:
    """Return a row of the table, or why there is none."""
    nbytes = tables.large_bytes if case.large else gpu.sizes.image_bytes
    try:
        memory = tables.of(case, nbytes)
        task = _task(nbytes, case, gpu.sizes.seed)
        gather = Gathers(gpu, task, 0, 0, memory.address, case.sms, block_threads=case.threads,
                         streaming=case.streaming)  # fmt: skip
        table = memory.rows(task.rows, case.row_bytes)
        gather.check("gpu-sweep", table)
        ours, copy = gpu.per_pass(gather.run), gpu.per_pass(partial(copy_slices, table, gather.out, len(task.ids)))
        turns = [(_wall(ours()), _wall(copy())) for _ in range(gpu.sizes.repeats)]
    except TieringError as error:
        return str(error)
    rates, copies = ([gigabytes(task.nbytes, seconds) for seconds in side] for side in zip(*turns, strict=True))
    share = median(left / right for left, right in zip(rates, copies, strict=True))
    hint = "streaming" if case.streaming else "default"
    return [case.row_bytes, case.sms or "all", case.threads, hint, case.ids, format_bytes(nbytes), case.pages,
            tables.huge_share, median(rates), min(rates), max(rates), median(copies), share]  # fmt: skip


def _wall(spent: Spent) -> float:
    return spent.wall


def _task(nbytes: int, case: Case, seed: int) -> RowTask:
    """Return up to a GiB of rows of a table, at most a quarter of it, no row twice, in eight batches."""
    rows = nbytes // case.row_bytes
    batch = max(1, min(rows // 4, _PASS_BYTES // case.row_bytes) // (_PASS_BYTES // _BATCH_BYTES))
    ids = np.random.default_rng(seed).choice(rows, (8, batch), replace=False).astype(np.int64)
    return RowTask(rows, case.row_bytes, np.sort(ids, axis=1) if case.ids == "ascending" else ids)
