"""Output directories are whole or absent: errors, kills, other writers, replaced outputs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tiering.errors import BusyError, ExistsError, MissingError, StorageError
from tiering.formats.artifact import ArtifactWriter
from tiering.formats.scores import Scores
from tiering.io.atomic import OutputDirectory
from tiering.io.storage import RawWriter

BODY = {"method": "m", "graph_digest": "xxh3-128:" + "0" * 32, "node_types": ["node"], "columns": ["feature"]}


def write_scores(out, values, **options):
    with ArtifactWriter(out, "scores", **options) as writer:
        writer.put("nodes/node/feature", np.asarray(values, np.float64))
        writer.commit(BODY, {"stage": "score"})
    return Scores.open(out)


def test_commit_leaves_only_the_output(tmp_path):
    write_scores(tmp_path / "S", [1.0, 2.0])
    assert [path.name for path in tmp_path.iterdir()] == ["S"]


def test_same_content_same_digest(tmp_path):
    assert write_scores(tmp_path / "a", [1.0]).digest == write_scores(tmp_path / "b", [1.0]).digest
    assert write_scores(tmp_path / "c", [2.0]).digest != write_scores(tmp_path / "d", [1.0]).digest


def test_an_error_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError), ArtifactWriter(tmp_path / "S", "scores") as writer:
        writer.put("nodes/node/feature", np.zeros(4))
        raise RuntimeError("boom")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_output_is_kept_without_force_and_replaced_with_it(tmp_path):
    write_scores(tmp_path / "S", [1.0])
    with pytest.raises(ExistsError, match="--force"):
        write_scores(tmp_path / "S", [2.0])
    assert Scores.open(tmp_path / "S").values()[0] == 1.0
    with pytest.raises(RuntimeError), ArtifactWriter(tmp_path / "S", "scores", force=True):
        raise RuntimeError("boom")
    assert Scores.open(tmp_path / "S").values()[0] == 1.0
    assert write_scores(tmp_path / "S", [3.0], force=True).values()[0] == 3.0
    assert [path.name for path in tmp_path.iterdir()] == ["S"]


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path):
    with OutputDirectory(tmp_path / "S"), pytest.raises(BusyError, match=str(os.getpid())):
        OutputDirectory(tmp_path / "S")
    OutputDirectory(tmp_path / "S").discard()


def test_a_killed_writer_leaves_nothing_that_opens(tmp_path):
    code = (
        "import sys, time, numpy as np\n"
        "from tiering.formats.artifact import ArtifactWriter\n"
        "w = ArtifactWriter(sys.argv[1], 'scores')\n"
        "w.put('nodes/node/feature', np.zeros(1000))\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, str(tmp_path / "S")], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    with pytest.raises(MissingError):
        Scores.open(tmp_path / "S")
    time.sleep(0.01)
    write_scores(tmp_path / "S", [1.0])
    assert [path.name for path in tmp_path.iterdir()] == ["S"]


def test_a_writer_that_wrote_too_little_is_caught(tmp_path):
    raw = RawWriter(tmp_path / "x", 16)
    raw.write(np.zeros(1))
    with pytest.raises(StorageError, match="8 bytes were written where 16"):
        raw.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs needs root")
def test_a_full_disk_says_what_is_needed_and_free_and_leaves_nothing(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mount.returncode:
        pytest.skip(f"no tmpfs here: {mount.stderr.decode().strip()}")
    try:
        with pytest.raises(StorageError, match=r"no space left: 7.629 MiB needed, .* free"):
            write_scores(disk / "S", np.zeros(1_000_000))
        assert list(disk.iterdir()) == []
    finally:
        subprocess.run(["umount", str(disk)], check=True)
