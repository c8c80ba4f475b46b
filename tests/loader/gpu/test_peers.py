"""Processes that share the peer tier and host memory: on simulated devices, one each."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
from peer_programs import gather, outlive, start
from torch.distributed import HashStore

from tiering.errors import DeviceError, InputError
from tiering.loader.gpu.memory import share_memory
from tiering.loader.processes.peers import PeerGroup, find_group


def peer_layout(kit, build, peers, rows=400, tiers=(40, 200, 160)):
    table = kit.random_table(rows, 96)
    data = kit.Dataset({"paper": kit.Nodes(rows, table, "uint8", tiers=tiers)}, peers=peers)
    return build(data), table[data.order("paper")]


@pytest.mark.slow
@pytest.mark.parametrize(("peers", "reach", "unshared"), [
    *((peers, "on", set()) for peers in ("store", "default group", "process group")),
    *(("store", "on", ranks) for ranks in ({1}, {0, 1, 2})), ("store", "off", set()),
])  # fmt: skip
def test_peers_read_each_others_rows(gpu, kit, build, tmp_path, peers, reach, unshared):
    """From host memory where GPUs do not reach each other, or processes cannot share: as in containers, some or all."""
    layout, rows = peer_layout(kit, build, 3)
    environment = {"TIERING_SIMULATED_DEVICES": "3", "TIERING_SIMULATED_PEERS": reach}
    ipc = [{"TIERING_SIMULATED_IPC": "off" if rank in unshared else "on"} for rank in range(3)]
    arguments = str(layout.path), str(tmp_path)
    ranks = [start(gather, *arguments, rank, 3, peers, environment=environment | ipc[rank]) for rank in range(3)]
    for rank, process in enumerate(ranks):
        answer = process.receive()
        np.testing.assert_array_equal(answer["rows"], rows[answer["ids"]])
        assert answer["live"] == {"allocations": 0, "ipc": 0, "registered": 0}
        far = (unshared if reach == "on" else {0, 1, 2}) - {rank}
        places = ["host memory" if peer in far else f"GPU of peer {peer}" for peer in range(3)]
        assert answer["places"] == ", ".join(places)
    assert [process.end() for process in ranks] == [0, 0, 0]


def test_memory_that_cannot_be_shared_is_said_once(monkeypatch, caplog):
    class Unshared:
        def share(self):
            raise DeviceError("papers: operation not supported")

    monkeypatch.setattr("tiering.loader.process._logged", set())
    group = PeerGroup(0, 1, HashStore())
    for _ in range(2):
        memory = Unshared()
        assert share_memory(group, group.numbered("rows"), memory, None, "papers") == [memory]
    said = [record.message for record in caplog.records if record.levelname == "WARNING"]
    consequence = "other processes read this process's part from host memory"
    assert said == [f"papers: operation not supported; {consequence}"]


TORCHRUN = """
import os, sys
import numpy as np
import pytest
from simulated_gpu import install
install(pytest.MonkeyPatch())
import tiering
rank = int(os.environ["LOCAL_RANK"])
layout = tiering.open(sys.argv[1])
features = layout.features(device=f"cuda:{rank}")
ids = np.random.default_rng(rank).integers(0, len(features), 500)
assert features.gather(ids).equal(layout.features(engine="threads").gather(ids))
assert features.placement()["peer"]["where"] == "GPU of peer 0, GPU of peer 1"
features.close()
"""


@pytest.mark.slow
def test_processes_of_torchrun_without_a_process_group(gpu, kit, build, tmp_path):
    layout, _ = peer_layout(kit, build, 2)
    (tmp_path / "script.py").write_text(TORCHRUN)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    arguments = [tmp_path / "script.py", layout.path]
    environment = {**os.environ, "TIERING_SIMULATED_DEVICES": "2"}
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, env=environment, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_peer_that_dies_is_named(gpu, kit, build, tmp_path):
    layout, _ = peer_layout(kit, build, 2)
    first, second = (start(outlive, str(layout.path), str(tmp_path), rank) for rank in range(2))
    assert (first.receive(), second.receive()) == ("ready", "ready")
    second.process.kill()
    second.end()
    first.line.send("go")
    message = first.receive()
    assert message.startswith(f"DeviceError: peer 1 (process {second.process.pid}) has ended")
    assert message.endswith("start all processes again")
    first.end()


def test_a_peer_that_never_comes():
    group = PeerGroup(0, 2, HashStore(), timeout=0.1)
    with pytest.raises(DeviceError, match=r"peer 1 of 2 did not come within 0.1 s"):
        group.exchange("rows", "mine")
    with pytest.raises(DeviceError, match=r"not all of 2 processes came within 0.1 s"):
        PeerGroup.on_this_machine(0, 2, HashStore(), timeout=0.1)


def test_a_store_that_is_gone():
    class Gone:
        def set(self, key, value):
            raise RuntimeError("Broken pipe")

    with pytest.raises(DeviceError, match="the store through which processes connect does not answer: Broken pipe"):
        PeerGroup(0, 2, Gone())


def test_processes_of_other_machines_are_no_peers():
    store = HashStore()
    for rank in (1, 3):
        store.set(f"machine/{rank}", f"elsewhere {rank}")
    groups = {}
    threads = [
        threading.Thread(target=lambda r=rank: groups.update({r: PeerGroup.on_this_machine(r, 5, store, 20)}))
        for rank in (0, 2, 4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {rank: (group.rank, group.size) for rank, group in groups.items()} == {0: (0, 3), 2: (1, 3), 4: (2, 3)}
    assert PeerGroup.on_this_machine(0, 1, HashStore()) is None


def test_wrong_number_of_processes(gpu, kit, build):
    layout, _ = peer_layout(kit, build, 3)
    with pytest.raises(InputError, match=r"the peer tier is for 3 GPUs, but 1 processes share it; .*peer=\"1xSIZE"):
        layout.features(device="cuda", peers=PeerGroup(0, 1, HashStore()))


def test_a_process_alone_reads_the_shares_of_others_from_host_memory(gpu, kit, build):
    layout, rows = peer_layout(kit, build, 3)
    with layout.features(device="cuda", peers="off") as features:
        np.testing.assert_array_equal(features.gather(np.arange(400)).numpy(), rows)
        assert features.placement()["peer"]["where"] == "GPU of peer 0, host memory, host memory"


def test_bad_groups(monkeypatch):
    with pytest.raises(InputError, match="expected a rank of 0 to 1, found 2"):
        PeerGroup(2, 2, HashStore())
    with pytest.raises(InputError, match="peers: expected auto, off, a process group or a PeerGroup, found 'on'"):
        find_group("on")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "x")
    with pytest.raises(InputError, match="LOCAL_WORLD_SIZE: expected a whole number"):
        find_group("auto")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "1")
    assert find_group("auto") is None
