"""Scores within a memory budget: the same bytes for any, peaks below it, what does not fit goes to disk and is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from toy_datasets import tree_bytes

from benchmarks.rmat import rmat_edges
from tiering import native, pipeline
from tiering.errors import StorageError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.graph.build import build_graph
from tiering.memory import own_memory
from tiering.scores.plan import METHODS, plan_score, score_graph

MIB = 1 << 20
MARGIN = 4 * MIB
"""For what is allocated between the look at the memory and the check of the budget."""
ALLOCATOR = 8 * MIB
"""What malloc keeps of small pieces that were freed: other tests in this process decide how much."""
SAMPLED = {"fanouts": [5, 3], "batch_size": 500}
THREADS = (1, 2, 7)


def options_of(method):
    return SAMPLED if "fanouts" in METHODS[method].options else {}


def made_rmat(folder, scale, num_edges):
    src, dst = rmat_edges(scale, num_edges, 5, scramble=True)
    edges = EdgeData(("node", "to", "node"), src, dst)
    return build_graph(Dataset("rmat", "npy", {"node": NodeData(1 << scale)}, [edges]), folder / "g")


@pytest.fixture(scope="module")
def rmat(tmp_path_factory):
    """2^20 nodes and 30 M edges: 120 MB of edges, in pieces of 1 M."""
    return made_rmat(tmp_path_factory.mktemp("rmat"), 20, 30_000_000)


@pytest.fixture(scope="module")
def smaller(tmp_path_factory):
    """2^20 nodes and 14 M edges: 56 MB of edges, more than the memory of `ranked`."""
    return made_rmat(tmp_path_factory.mktemp("smaller"), 20, 14_000_000)


def nameless_files(folder):
    """Bytes of the files in a directory that this process has open and that never had a name."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):
            target = str(each.readlink())
            if target.startswith(str(folder)) and "/#" in target and target.endswith("(deleted)"):
                found.append(each.stat().st_size)
    return found


@contextmanager
def seen_files(folder, what=len):
    """How many nameless files of a directory are open, or their bytes, now and then, while something runs."""
    counts = [0]
    done = threading.Event()

    def look():
        while not done.wait(0.005):
            counts.append(what(nameless_files(folder)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield counts
    finally:
        done.set()
        thread.join()


def budgets(minimum, recommended):
    return [minimum, (3 * minimum + recommended) // 4, recommended + 64 * MIB]


@pytest.mark.slow
@pytest.mark.parametrize(("share", "on_disk"), [(0.0, True), (0.05, True), (0.6, False)])
def test_scratch_is_predicted(rmat, tmp_path, settled_memory, share, on_disk):
    """By the rule of the core, without its counts of every bin."""
    need = plan_score(rmat, "wrpr", threads=2, train="1%").need
    pipeline.estimate_score(rmat, tmp_path / "out", "wrpr", memory="8GiB", train="1%")  # what that takes is taken now
    limit = own_memory() + MARGIN + int(need.minimum + share * (need.recommended - need.minimum))
    estimate = pipeline.estimate_score(rmat, tmp_path / "out", "wrpr", threads=2, memory=limit, train="1%")
    with seen_files(tmp_path, lambda sizes: max(sizes, default=0)) as sizes:
        score_graph(rmat, "wrpr", tmp_path / "out", threads=2, memory=limit, train="1%")
    assert (max(sizes) > 0) == on_disk
    assert estimate.plans[0].disk_scratch == pytest.approx(max(sizes), rel=0.2, abs=4 * MIB)


@pytest.mark.slow
@pytest.mark.parametrize("method", [pytest.param("rpr", marks=pytest.mark.long), "wrpr", "vip"])
def test_same_bytes_for_any_memory_and_threads(rmat, tmp_path, method, peak_memory, settled_memory):
    given = {**options_of(method), **({} if method == "rpr" else {"train": "1%"})}
    if method == "rpr":
        given["tolerance"] = 1e-3
    expected = tree_bytes(score_graph(rmat, method, tmp_path / "all", threads=2, memory="8GiB", **given).path)
    for threads in THREADS:
        need = plan_score(rmat, method, threads=threads, **given).need
        for memory in budgets(need.minimum, need.recommended):
            with seen_files(tmp_path) as files, peak_memory() as peak:
                limit = own_memory() + memory + MARGIN
                found = score_graph(rmat, method, tmp_path / "out", threads=threads, memory=limit, force=True, **given)
            assert tree_bytes(found.path) == expected
            assert peak.bytes <= limit + ALLOCATOR
            assert memory > need.minimum or max(files) > 0, "nothing was on disk"
            assert memory < need.recommended or max(files) == 0, "something was on disk"


def ranked(graph, scratch, *, sweeps=3, memory=None, files=False):
    """Straight to the core: with as little memory as there may be, most edges lie on disk."""
    relation = graph.relations[0]
    indptr, indices = graph.csc(relation)
    nodes = graph.num_nodes()
    none = np.empty(0, np.int64)
    return native.reverse_pagerank(
        [(0, 0, indptr, indices)], [nodes], [(1 / nodes, 0.0, none)], [(0.15 / nodes, 0.0, none)], 0.85, sweeps, 0.0, 2,
        40 * MIB if memory is None else memory, str(scratch), [(str(indices.filename), None)] if files else [],
    )  # fmt: skip


@pytest.mark.slow
def test_indices_read_past_the_page_cache(rmat, tmp_path):
    mapped, _, residual = ranked(rmat, tmp_path)
    read, _, same = ranked(rmat, tmp_path, files=True)
    assert mapped[0].tobytes() == read[0].tobytes()
    assert residual == same


def test_scratch_is_gone_after_success(smaller, tmp_path):
    with seen_files(tmp_path) as counts:
        ranked(smaller, tmp_path)
    assert max(counts) > 0, "nothing was on disk"
    assert nameless_files(tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_scratch_is_gone_after_an_error(smaller, tmp_path):
    """The second relation is wrong; the edges of the first are binned by then."""
    indptr, indices = smaller.csc(smaller.relations[0])
    nodes = smaller.num_nodes()
    wrong = np.array(indices)
    wrong[-1] = nodes
    values = [(1.0, 0.0, np.empty(0, np.int64))]
    relations = [(0, 0, indptr, indices), (0, 0, indptr, wrong)]
    with pytest.raises(ValueError, match=rf"indices\[{wrong.size - 1}\] is {nodes}, outside"):
        native.reverse_pagerank(relations, [nodes], values, values, 0.85, 1, 0.0, 2, 40 * MIB, str(tmp_path))
    assert nameless_files(tmp_path) == []
    assert not list(tmp_path.iterdir())


def test_ctrl_c_ends_a_sweep_and_leaves_nothing(smaller, tmp_path):
    def interrupt():
        while not nameless_files(tmp_path):  # the core has begun
            time.sleep(0.005)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        ranked(smaller, tmp_path, sweeps=1_000_000)  # hours
    assert nameless_files(tmp_path) == []
    assert not list(tmp_path.iterdir())
    thread.join()


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_says_what_is_needed_and_free(rmat, tmp_path, settled_memory):
    disk = tmp_path / "disk"
    disk.mkdir()
    # Edges go to disk before the scores do.
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True).returncode:
        pytest.skip("cannot mount a small tmpfs")
    try:
        with pytest.raises(OSError, match=r"no space left for a scratch file: \d+ bytes needed, \d+ free"):
            ranked(rmat, disk)
        minimum = plan_score(rmat, "wrpr", train="1%", threads=2).need.minimum
        with pytest.raises(
            StorageError, match=r"no space left .* needed, .* free; free disk space, or give more memory"
        ):
            score_graph(rmat, "wrpr", disk / "out", train="1%", threads=2, memory=own_memory() + minimum + MARGIN)
        left = [each for each in disk.rglob("*") if each.is_file()]
        assert sum(each.stat().st_size for each in left) < 4096, "only what a second run goes on from"
        assert not nameless_files(tmp_path)
    finally:
        subprocess.run(["umount", str(disk)], check=True)
