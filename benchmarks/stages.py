"""Whole stages, from files to files, against reading and writing as many bytes on the same disk, in turn.

Each stage runs as the command does, in a process of its own, its input out of the page cache; with a memory budget in a
memory control group of a tenth more, where such a group can be made. The peer reads the stage's input files once and
writes as many bytes as the stage left, both directly: less cannot be done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Comparison, Side, Sizes, Spent, compare, cpu_seconds, take_turn, touch_memory
from benchmarks.memory_group import memory_group
from benchmarks.rmat import rmat_edges
from tiering.artifacts.storage import ALIGNMENT, aligned_bytes, open_direct, reserve, write_all
from tiering.errors import CapabilityError, InternalError
from tiering.text.units import parse_size

FLOOR = "its input read and its output written, directly"
STAGES = ("import", "score", "reorder")
_PART = 1 << 25
"""Edges drawn at a time."""
_SAMPLE_SECONDS = 5.0
"""How long the memory map is read."""
_PIECE, _STREAMS = 16 << 20, 4
"""Bytes of a direct read or write, and how many run side by side."""
_MEMORY_MAP = """
import sys, time, numpy
table, order, rows, limit = sys.argv[1:]
ids = numpy.memmap(order, numpy.int64 if int(rows) > 2**31 else numpy.int32, 'r', shape=(int(rows),))
t = numpy.load(table, mmap_mode='r')
start = time.perf_counter()
done = 0
while done < len(ids) and time.perf_counter() - start < float(limit):
    t[ids[done : done + 256]]; done += 256
print((time.perf_counter() - start) * len(ids) / done)
"""


def chain(sizes: Sizes, timed: Sequence[str] = STAGES) -> list[Comparison]:
    """Compare the stages, one after the other up to the last that is timed, each on the artifact of the one before."""
    results = []
    with bench_folder(sizes) as folder:
        data, graph, scores, ordered = (folder / name for name in ("data", "graph", "scores", "reordered"))
        edges = write_edges(sizes, data)
        commands: dict[str, tuple[list[Any], list[Path]]] = {
            "import": (["import", data, "--num-nodes", sizes.graph_nodes, "--out", graph], [data]),
            "score": (["score", graph, "--method", "wrpr", "--train", "1%", "--out", scores], [graph]),
            "reorder": (["reorder", graph, "--scores", scores, "--out", ordered], [graph, scores]),
        }
        for name in STAGES[: 1 + max(map(STAGES.index, timed))]:
            command, inputs = commands[name]
            if name in timed:
                results.append(stage(sizes, folder, command, inputs, [command[-1]]))
            else:
                run_tiering(sizes, command)
            edges.unlink(missing_ok=True)
    return results


import_ = partial(chain, timed=("import",))
score = partial(chain, timed=("score",))
reorder = partial(chain, timed=("reorder",))


def layout(sizes: Sizes) -> Comparison:
    """Measure feature rows into tiers, in an order that has nothing to do with where they lie.

    The strict floor of a permutation that does not fit in memory is twice the copy: all rows are read and written
    twice. In addition, for a few seconds, rows by a memory map and fancy indexing.
    """
    with bench_folder(sizes) as folder:
        rows = max(2, sizes.feature_bytes // sizes.row_bytes)
        small = replace(sizes, stage_nodes=rows, edges=2 * rows)
        data, graph, scores, ordered = (folder / name for name in ("data", "graph", "scores", "ordered"))
        edges, table = write_edges(small, data), data / "node_feat.npy"
        write_rows(table, rows, sizes.row_bytes)
        run_tiering(sizes, ["import", data, "--num-nodes", rows, "--out", graph])
        edges.unlink()
        run_tiering(sizes, ["score", graph, "--method", "degree", "--out", scores])
        run_tiering(sizes, ["reorder", graph, "--scores", scores, "--out", ordered])
        made = [folder / "layout", folder / "ssd"]
        command = ["layout", ordered, "--cpu", "50%", "--ssd", made[1], "--out", made[0]]
        result = stage(small, folder, command, [data], made, rows * sizes.row_bytes)
        result.parameters |= {"rows": rows, "row_bytes": sizes.row_bytes}
        forget([table])
        order = ordered / "order" / "nodes" / "node" / "new_to_old"
        mapped = run_limited(sizes.memory, [sys.executable, "-c", _MEMORY_MAP, table, order, rows, _SAMPLE_SECONDS])
        turns = len(result.ours.seconds)
        seconds, none = [float(mapped.result)] * turns, [0.0] * turns
        result.peers.append(Side("numpy memmap[ids], a sample, scaled", seconds, none))
        return result


def write_edges(sizes: Sizes, folder: Path) -> Path:
    """Draw the edges of the R-MAT graph of `sizes`, (2, E) int64, and write them; memory for a part at a time."""
    folder.mkdir(parents=True)
    path = folder / "edge_index.npy"
    scale = max(1, (sizes.graph_nodes - 1).bit_length())
    out = np.lib.format.open_memmap(path, "w+", np.int64, (2, sizes.edges))
    begin, part = 0, sizes.seed
    while begin < sizes.edges:
        drawn = rmat_edges(scale, min(_PART, 2 * (sizes.edges - begin) + 1000), part, scramble=True)
        inside = (drawn[0] < sizes.graph_nodes) & (drawn[1] < sizes.graph_nodes)
        kept = np.stack(drawn)[:, inside][:, : sizes.edges - begin]
        out[:, begin : begin + kept.shape[1]] = kept
        begin, part = begin + kept.shape[1], part + 1
    out.flush()
    return path


def write_rows(path: Path, rows: int, row_bytes: int) -> None:
    """Write a table of float16 or bytes, not all alike; made of one random block."""
    dtype, dim = ("<f2", row_bytes // 2) if row_bytes % 2 == 0 else ("|i1", row_bytes)
    block = np.random.default_rng(0).integers(0, 100, (max(1, (64 << 20) // row_bytes), dim)).astype(dtype)
    reserve(path, rows * row_bytes)
    with path.open("r+b") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": dtype, "fortran_order": False, "shape": (rows, dim)})
        for begin in range(0, rows, block.shape[0]):
            block[:, 0] = np.arange(begin, begin + block.shape[0]) % 100
            file.write(block[: rows - begin].data)
        file.truncate()


def stage(
    sizes: Sizes, folder: Path, command: list[Any], read: list[Path], made: list[Path], left: int = 0
) -> Comparison:
    """Time a command that reads some directories and makes others, anew each turn, and the disk in turn.

    `left` bytes are what it leaves and the unit of its rate; without, what lies in the first directory that it makes,
    and the rate is in edges.
    """
    inputs = [path for place in read for path in _files(place)]
    wanted = 16 * sizes.edges + (1 << 28)  # bytes that a stage takes, roughly
    wanted = min(wanted, parse_size(sizes.memory, "memory").bytes or wanted)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")

    def ours() -> Spent:
        for place in made:
            shutil.rmtree(place, ignore_errors=True)
        forget(inputs)
        touch_memory(min(machine // 2, wanted))
        return run_tiering(sizes, command)

    def written() -> int:
        return left or sum(path.stat().st_size for path in _files(made[0]))

    def floor() -> Spent:
        forget(inputs)
        return read_and_write(inputs, folder / "written", written())

    repeats = min(3, sizes.repeats)  # fewer, because they are long
    amount, unit = (left, "B") if left else (sizes.edges, "edges")
    result = compare(command[0], ours, {FLOOR: floor}, amount=amount, unit=unit, repeats=repeats, warm_up=False)
    result.parameters |= {
        "nodes": sizes.graph_nodes, "edges": sizes.edges, "threads": sizes.threads, "memory": sizes.memory,
        "read": sum(path.stat().st_size for path in inputs), "written": written(),
    }  # fmt: skip
    return result


def run_tiering(sizes: Sizes, command: list[Any]) -> Spent:
    """Run a command that takes --memory in a process of its own."""
    more = ["--threads", sizes.threads, "--memory", sizes.memory, "--json"]
    return run_limited(sizes.memory, [sys.executable, "-m", "tiering.cli", *command, *more])


def run_limited(memory: str, line: list[Any]) -> Spent:
    """Run a command line, held by the kernel to a tenth more than `memory` where that is a size; return its output."""
    limit = parse_size(memory, "memory").bytes
    with ExitStack() as stack:
        enter: Callable[[], None] | None = None
        if limit is not None:
            with suppress(CapabilityError):
                enter = stack.enter_context(memory_group(limit + limit // 10)).enter
        argv = [str(word) for word in line]
        cpu, start = cpu_seconds(), time.perf_counter()
        done = subprocess.run(argv, capture_output=True, text=True, check=False, preexec_fn=enter)
        spent = Spent(time.perf_counter() - start, cpu_seconds() - cpu, done.stdout)
    if done.returncode != 0:
        raise InternalError(f"{argv[1:4]} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return spent


def read_and_write(inputs: Iterable[Path], out: Path, nbytes: int) -> Spent:
    """Time files read whole, and as many bytes written to a file with reserved space, synced, then removed."""
    nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
    reserve(out, nbytes)
    fd = open_direct(out)
    fd = os.open(out, os.O_RDWR) if fd is None else fd

    def work() -> None:
        for path in inputs:
            _read_file(path)
        _in_pieces(nbytes, lambda at, buffer: write_all(fd, buffer[: min(_PIECE, nbytes - at)], at))
        os.fsync(fd)

    try:
        return take_turn(work)
    finally:
        os.close(fd)
        out.unlink()


def _read_file(path: Path) -> None:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        fd = os.open(path, os.O_RDONLY)
    try:
        _in_pieces(path.stat().st_size, lambda at, buffer: os.preadv(fd, [buffer.data], at))
    finally:
        os.close(fd)


def _in_pieces(nbytes: int, work: Callable[[int, npt.NDArray[np.uint8]], object]) -> None:
    """Call `work` for each piece, with its offset and a buffer."""

    def stream(k: int) -> None:
        buffer = aligned_bytes(_PIECE)
        buffer.fill(1)
        for at in range(k * _PIECE, nbytes, _STREAMS * _PIECE):
            work(at, buffer)

    with ThreadPoolExecutor(_STREAMS) as pool:
        list(pool.map(stream, range(_STREAMS)))


def forget(paths: Iterable[Path]) -> None:
    """Take files out of the page cache."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        try:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(fd)


def _files(place: Path) -> list[Path]:
    found = place.rglob("*") if place.is_dir() else [place]
    return [path for path in found if path.is_file() and path.stat().st_size]


@contextmanager
def bench_folder(sizes: Sizes) -> Iterator[Path]:
    """Open a directory on the disk to measure, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="tiering-bench-", dir=os.fspath(sizes.folder)) as name:
        yield Path(name)
