"""Processes that share the peer tier and host memory: on simulated devices, one each."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from peer_programs import gather, outlive, start

from tiering.errors import DeviceError, InputError
from tiering.loader.gpu.peers import PeerGroup, find_group


def peer_layout(kit, build, peers, rows=400, tiers=(40, 200, 160)):
    table = kit.random_table(rows, 96)
    data = kit.Dataset({"paper": kit.Nodes(rows, table, "uint8", tiers=tiers)}, peers=peers)
    return build(data), table[data.order("paper")]


@pytest.mark.parametrize("reach", ["on", "off"])
def test_peers_read_each_others_rows(gpu, kit, build, tmp_path, reach):
    layout, rows = peer_layout(kit, build, 3)
    folder, environment = tmp_path / "meet", {"TIERING_SIMULATED_DEVICES": "3", "TIERING_SIMULATED_PEERS": reach}
    ranks = [
        start(gather, str(layout.path), str(folder), rank, 3, "group", environment=environment) for rank in range(3)
    ]
    for rank, process in enumerate(ranks):
        found = process.receive()
        np.testing.assert_array_equal(found["rows"], rows[found["ids"]])
        assert found["live"] == {"allocations": 0, "ipc": 0, "registered": 0}
        places = [f"GPU of peer {peer}" if reach == "on" or peer == rank else "host memory" for peer in range(3)]
        assert found["places"] == ", ".join(places)
    assert [process.end() for process in ranks] == [0, 0, 0]
    assert not folder.exists()


def test_a_peer_that_dies_is_named(gpu, kit, build, tmp_path):
    layout, _ = peer_layout(kit, build, 2)
    first, second = (start(outlive, str(layout.path), str(tmp_path / "meet"), rank) for rank in range(2))
    assert (first.receive(), second.receive()) == ("ready", "ready")
    second.process.kill()
    second.end()
    first.line.send("go")
    message = first.receive()
    assert message.startswith(f"DeviceError: peer 1 (process {second.process.pid}) has ended")
    assert message.endswith("start all processes again")
    first.end()


def test_a_peer_that_never_comes(tmp_path):
    group = PeerGroup(0, 2, tmp_path / "meet", timeout=0.1)
    with pytest.raises(DeviceError, match=r"peer 1 of 2 did not come within 0.1 s"):
        group.exchange("rows", "mine")


def test_what_an_earlier_run_left_is_not_read(tmp_path):
    folder = tmp_path / "meet"
    folder.mkdir()
    ended = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, text=True)
    card = {"pid": int(ended.stdout), "started": "1", "payload": "stale"}
    (folder / "rows.1").write_text(json.dumps(card))
    group = PeerGroup(0, 2, folder, timeout=20)
    other = PeerGroup(1, 2, folder, timeout=20)

    def late():
        time.sleep(0.2)
        other.exchange("rows", "fresh")

    thread = threading.Thread(target=late)
    thread.start()
    assert group.exchange("rows", "mine") == ["mine", "fresh"]
    thread.join()


def test_wrong_number_of_processes(gpu, kit, build, tmp_path):
    layout, _ = peer_layout(kit, build, 3)
    with pytest.raises(InputError, match=r"made for 3 GPUs, and 1 processes share it; .*--peer 1xSIZE"):
        layout.features(device="cuda", peers=PeerGroup(0, 1, tmp_path / "meet"))


def test_several_gpus_of_one_process(gpu, kit, build):
    """Shares lie on the GPUs that there are, the rest in host memory."""
    layout, rows = peer_layout(kit, build, 3)
    environment = {"TIERING_SIMULATED_DEVICES": "2"}
    alone = start(gather, str(layout.path), "", 0, 1, "off", environment=environment)
    found = alone.receive()
    np.testing.assert_array_equal(found["rows"], rows[found["ids"]])
    assert found["places"] == "GPU of peer 0, GPU of peer 1, host memory"
    assert alone.end() == 0


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"LOCAL_WORLD_SIZE": "1", "LOCAL_RANK": "0"}, None),
        ({"LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "2"}, 2),
    ],
)
def test_group_of_torchrun(environment, expected):
    group = PeerGroup.from_environment({**environment, "MASTER_PORT": "29500"})
    assert (group.rank if group else None) == expected
    if group:
        assert group.size == 4 and "29500" in group.directory.name
        group.directory.rmdir()


def test_bad_groups(tmp_path):
    with pytest.raises(InputError, match="expected a rank of 0 to 1, found 2"):
        PeerGroup(2, 2, tmp_path)
    with pytest.raises(InputError, match="LOCAL_RANK, LOCAL_WORLD_SIZE"):
        PeerGroup.from_environment({"LOCAL_RANK": "x"})
    with pytest.raises(InputError, match="peers: expected auto, off or a PeerGroup, found 'on'"):
        find_group("on")
