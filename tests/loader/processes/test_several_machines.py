"""Training on several machines, each with its own copy of the layout: simulated by namespaces of the kernel."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training_process
import xxhash
from epochs import known_disk
from simulated_nodes import Node, simulated_nodes
from torch.distributed import HashStore

import tiering
from examples.train_graphsage import digest_batch
from tiering import machine
from tiering.loader import PeerGroup
from tiering.loader.processes import peers

ROWS, ROW_BYTES, SEEDS = 40_000, 4096, 2000
MEMORY = 96 << 20
"""Bytes for the loaders of a machine: three fifths of the rows."""
EPOCHS = 2
PROGRAM = Path(training_process.__file__)


def groups(ids: list[str], monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int] | None]:
    """Rank and size, on its machine, of each of several processes on the machines of these ids."""
    store, found, own = HashStore(), dict[int, PeerGroup | None](), threading.local()
    monkeypatch.setattr(peers, "machine_id", lambda: own.id)

    def meet(rank: int) -> None:
        own.id = ids[rank]
        found[rank] = PeerGroup.on_this_machine(rank, len(ids), store, 20)

    threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(len(ids))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [None if (group := found[rank]) is None else (group.rank, group.size) for rank in range(len(ids))]


def test_machines_of_one_image_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have one host name, and the namespaces that every kernel starts with."""
    ids = []
    for boot in ("6c1f", "09ab", "77e0"):
        monkeypatch.setattr(machine, "boot_id", lambda boot=boot: boot)
        ids.append(machine.machine_id())
    assert len(set(ids)) == 3 and {key.split(" ", 1)[1] for key in ids} == {ids[0].split(" ", 1)[1]}
    a, b, c = ids
    assert groups([a, a, b, b], monkeypatch) == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert groups([a, b, a, c, b, a], monkeypatch) == [(0, 3), (0, 2), (1, 3), None, (1, 2), (2, 3)]


@pytest.mark.parametrize("namespace", ["--uts", "--pid", "--net"])
def test_processes_that_cannot_reach_each_other_are_on_two_machines(namespace: str) -> None:
    """Containers on one kernel; a namespace that matters to neither memory nor sockets makes no difference."""
    name = "import socket; socket.sethostname('another'); " if namespace == "--uts" else ""
    command = [sys.executable, "-c", f"{name}from tiering.machine import *; print(machine_id())"]
    if subprocess.run(["unshare", namespace, "--fork", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespace can be made here")

    def seen(*isolated: str) -> str:
        return subprocess.run([*isolated, *command], capture_output=True, text=True, check=True).stdout.strip()

    assert seen("unshare", namespace, "--fork") != machine.machine_id()
    if not name:
        assert seen() == seen("unshare", "--mount") == machine.machine_id()


def test_a_kernel_that_hides_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    """Host name and namespaces are left."""
    whole = machine.machine_id()
    assert machine.boot_id() and whole.startswith(machine.boot_id())

    def hidden(path: Path) -> str:
        raise PermissionError(path)

    monkeypatch.setattr(Path, "read_text", hidden)
    assert machine.boot_id() == "" and whole.endswith(machine.machine_id())


@pytest.fixture(scope="module")
def mount(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A drive with a layout of which memory holds three fifths, as it is mounted on every machine."""
    folder, rng = tmp_path_factory.mktemp("machines"), np.random.default_rng(0)
    data, drive = folder / "data", folder / "nvme"
    data.mkdir()
    np.save(data / "edge_index.npy", rng.integers(0, ROWS, (2, 10 * ROWS)))
    np.save(data / "node_feat.npy", rng.standard_normal((ROWS, ROW_BYTES // 4), np.float32))
    np.save(data / "node_label.npy", rng.integers(0, 4, ROWS))
    np.save(data / "train_idx.npy", rng.permutation(ROWS)[:SEEDS])
    graph = tiering.import_graph(data, out=folder / "graph")
    ordered = tiering.reorder_graph(graph, tiering.score_graph(graph, out=folder / "scores"), out=folder / "reordered")
    tiering.write_layout(ordered, out=drive / "layout", cpu="5%", ssd=[drive / "ssd0", drive / "ssd1"])
    known_disk(drive)
    return drive


@pytest.fixture
def nodes(mount: Path, tmp_path: Path) -> Iterator[list[Node]]:
    """Two machines, each with its own copy of the drive."""
    drives = [tmp_path / f"drive{number}" for number in range(2)]
    for drive in drives:
        subprocess.run(["cp", "-a", str(mount), str(drive)], check=True)
    with simulated_nodes(drives, mount) as nodes:
        yield nodes


def report(folder: Path, rank: int) -> tuple[dict[tuple[int, int], tuple[str, float]], dict[str, Any]]:
    """Digest and loss of each batch of a rank, by epoch and number, and what it read."""
    *batches, seen = (json.loads(line) for line in (folder / f"rank-{rank}").read_text().splitlines())
    return {(epoch, number): (digest, loss) for epoch, number, digest, loss in batches}, seen


def bytes_of_machines(seen: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Bytes that each machine read from its stripe files, and bytes of the rows that its batches needed from them."""
    totals = dict[str, tuple[int, int]]()
    for about in seen:
        read, needed = totals.get(about["host"], (0, 0))
        rows = about["rows"]["ssd"] + about["rows"]["read"]
        totals[about["host"]] = read + about["read_bytes"], needed + ROW_BYTES * rows
    return totals


def train(nodes: list[Node], processes: int, folder: Path, mount: Path) -> list[Any]:
    """Train on all nodes to the end; the report of each rank."""
    folder.mkdir()
    arguments = (mount / "layout", folder, EPOCHS, MEMORY)
    outputs = [folder / f"node-{node.number}" for node in nodes]
    programs = [node.train(len(nodes), PROGRAM, *arguments, out=out, processes=processes)
                for node, out in zip(nodes, outputs, strict=True)]  # fmt: skip
    for program, out in zip(programs, outputs, strict=True):
        assert program.wait(300) == 0, out.read_text()
    return [report(folder, rank) for rank in range(len(nodes) * processes)]


@pytest.mark.slow
def test_machines_train_as_one(nodes: list[Node], mount: Path, tmp_path: Path) -> None:
    """2 x 2 processes, and 1 x 4: the same batches and losses; each machine reads through one buffer of its own."""
    layout = tiering.open(mount / "layout")
    options = {**training_process.OPTIONS, "features": "memory"}
    alone = {}
    for epoch in range(EPOCHS):
        for batch in layout.loader("train", **options).epoch(epoch):
            digest_batch(hasher := xxhash.xxh3_64(), batch)
            alone[epoch, batch.index] = hasher.hexdigest()
    layout.close()
    two, one = train(nodes, 2, tmp_path / "two", mount), train(nodes[:1], 4, tmp_path / "one", mount)
    rounds, rest = divmod(SEEDS, 4 * training_process.OPTIONS["batch_size"])
    assert rest and {number for _, number in alone} == set(range(-(-SEEDS // training_process.OPTIONS["batch_size"])))
    for rank, ((batches, _), (expected, _)) in enumerate(zip(two, one, strict=True)):
        numbers = range(rank, 4 * (rounds + 1), 4)  # the seeds of a last round are divided evenly
        assert list(batches) == list(expected) == [(epoch, number) for epoch in range(EPOCHS) for number in numbers]
        for (epoch, number), (digest, loss) in batches.items():
            assert digest == expected[epoch, number][0]
            assert loss == pytest.approx(expected[epoch, number][1], abs=5e-7)
            if number < 4 * rounds:
                assert digest == alone[epoch, number]
    losses = [[loss for _, loss in batches.values()] for batches, _ in two]
    assert len({tuple(own) for own in losses}) == 4
    for seen, hosts in ((two, ["node0", "node0", "node1", "node1"]), (one, ["node0"] * 4)):
        assert [about["host"] for _, about in seen] == hosts
        assert all(about["reads ahead"] for _, about in seen)
        reads = bytes_of_machines([about for _, about in seen])
        print({host: f"{read:,} bytes read of {needed:,} needed" for host, (read, needed) in reads.items()})
        assert all(0 < read < needed for read, needed in reads.values())  # the buffer serves a row to all that need it


@pytest.mark.slow
@pytest.mark.parametrize(("ends", "way"), [(1, "kill"), (0, "kill"), (1, "unplug")])
def test_a_machine_that_ends(ends: int, way: str, nodes: list[Node], mount: Path, tmp_path: Path) -> None:
    """The other one ends with an error: at once, or where nothing tells it that the machine has gone, in time."""
    arguments = (mount / "layout", tmp_path, 10_000, MEMORY)
    outputs = [tmp_path / f"node-{node.number}" for node in nodes]
    programs = [node.train(2, PROGRAM, *arguments, out=out) for node, out in zip(nodes, outputs, strict=True)]
    lines = [tmp_path / f"rank-{rank}" for rank in range(4)]
    end = time.monotonic() + 120
    while not all(file.exists() and file.read_text().count("\n") > 20 for file in lines):
        assert all(program.poll() is None for program in programs), "".join(out.read_text() for out in outputs)
        assert time.monotonic() < end
        time.sleep(0.05)
    getattr(nodes[ends], way)()
    start = time.monotonic()
    for number in [0, 1] if way == "unplug" else [1 - ends]:
        assert programs[number].wait(training_process.TIMEOUT + 60) > 0
        print(f"machine {number} ended after {time.monotonic() - start:.1f} s")
        assert "Error" in outputs[number].read_text()
