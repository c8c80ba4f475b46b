"""Processes that share the peer tier and host memory: on simulated devices, one each."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tiering.errors import DeviceError, InputError
from tiering.runtime.gpu.peers import PeerGroup, find_group

HERE = Path(__file__).parent
PROGRAM = """
import json, sys
import numpy as np, pytest
sys.path.insert(0, sys.argv[1])
from simulated_gpu import install
from tiering.runtime import open_layout
from tiering.runtime.gpu.peers import PeerGroup
import tiering.runtime.gpu.device as devices

simulator = install(pytest.MonkeyPatch())
layout_path, folder, rank, size, what = sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]), sys.argv[6]
group = PeerGroup(rank, size, folder, timeout=20)
layout = open_layout(layout_path)
features = layout.features(device="cuda", peers=group)
if what == "die" and rank == 1:
    print("ready", flush=True)
    sys.stdin.read()  # until killed
ids = np.random.default_rng(rank).integers(0, len(features), 500)
rows = features.gather(ids).numpy().copy()
print("gathered", flush=True)
if what == "die":
    sys.stdin.readline()
    try:
        features.gather(ids)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}), flush=True)
        sys.exit(3)
places = features.placement()["peer"]["where"]
features.close()
layout.close()
live = {k: simulator.live(k) for k in ("allocations", "ipc", "registered")}
print(json.dumps({"ids": ids.tolist(), "rows": rows.tolist(), "places": places, "live": live}), flush=True)
"""


def start(layout, folder, size, what="gather", **environment):
    """One process for each rank."""
    support = str(HERE.parents[1] / "support")
    return [
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, support, str(layout.path), str(folder), str(rank), str(size), what],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        for rank in range(size)
    ]


def peer_layout(kit, build, peers, rows=400, tiers=(40, 200, 160)):
    table = kit.random_table(rows, 96)
    data = kit.Dataset({"paper": kit.Nodes(rows, table, "uint8", tiers=tiers)}, peers=peers)
    return build(data), table[data.order("paper")]


@pytest.mark.parametrize("reach", ["on", "off"])
def test_peers_read_each_others_rows(gpu, kit, build, tmp_path, reach):
    layout, rows = peer_layout(kit, build, 3)
    processes = start(layout, tmp_path / "meet", 3, TIERING_SIMULATED_PEERS=reach)
    for rank, process in enumerate(processes):
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        found = json.loads(out.splitlines()[-1])
        np.testing.assert_array_equal(np.array(found["rows"], np.uint8), rows[found["ids"]])
        assert found["live"] == {"allocations": 0, "ipc": 0, "registered": 0}
        assert found["places"].split(", ")[rank] == f"GPU of peer {rank}"
    assert not (tmp_path / "meet").exists()


def test_a_peer_that_dies_is_named(gpu, kit, build, tmp_path):
    layout, _ = peer_layout(kit, build, 2)
    first, second = start(layout, tmp_path / "meet", 2, "die")
    assert second.stdout.readline() == "ready\n"
    assert first.stdout.readline() == "gathered\n"
    second.send_signal(signal.SIGKILL)
    second.wait(timeout=30)
    first.stdin.write("go\n")
    first.stdin.flush()
    out, errors = first.communicate(timeout=60)
    assert first.returncode == 3, errors
    message = json.loads(out.splitlines()[-1])["error"]
    assert message.startswith(f"DeviceError: peer 1 (process {second.pid}) has ended")
    assert "start all processes again" in message
    second.communicate()


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


def test_several_gpus_of_one_process(kit, build, monkeypatch):
    """Shares lie on the GPUs that there are, the rest in host memory."""
    monkeypatch.setenv("TIERING_SIMULATED_DEVICES", "2")
    layout, rows = peer_layout(kit, build, 3)
    program = PROGRAM.replace("peers=group", "peers='off'").replace("timeout=20)", "timeout=20)", 1)
    support = str(HERE.parents[1] / "support")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            program,
            support,
            str(layout.path),
            str(layout.path.parent / "meet"),
            "0",
            "1",
            "gather",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_array_equal(np.array(found["rows"], np.uint8), rows[found["ids"]])
    assert found["places"] == "GPU of peer 0, GPU of peer 1, host memory"


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
