"""Something goes wrong inside a stage: the same bytes in the end, and no more is done again than was lost."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest
from real_steps import STEPS, Watched, assert_same, make, prepare

from tiering.errors import StorageError
from tiering.run import pieces
from tiering.run.job import ClusterOptions, Job


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    return prepare(tmp_path_factory.mktemp("faults"))


def damage(how: str):
    """Harms the segment of one task of every stage whose segments others read, once; how many were."""
    done: list[str] = []

    def harm(job: Job, stage, made) -> None:
        key = made[0]["shuffle"]["key"] if made else ""
        path = Path(job.store.url) / key
        if not made or made[0]["file"] is not None or path.stat().st_size < 80 or stage.name in done:
            return
        done.append(stage.name)
        data = bytearray(path.read_bytes())
        if how == "flipped":
            at = int(np.flatnonzero(np.frombuffer(data, np.uint8))[0])
            data[at] ^= 4
            path.write_bytes(data)
        elif how == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif how == "removed":
            path.unlink()
        elif how == "table":  # without it, the records say where the files are
            table = Path(job.store.url) / pieces.table_key(job.name, stage.name)
            table.write_bytes(table.read_bytes().replace(b'"entries_at":', b'"entries_at":1', 1))
        elif how == "manifest":
            job.store.remove(pieces.table_key(job.name, stage.name))
            manifest = Path(job.store.url) / pieces.record_key(job.name, stage.name, 0)
            manifest.write_bytes(manifest.read_bytes()[:-5])

    harm.done = done
    return harm


@pytest.mark.parametrize("how", ["flipped", "cut", "removed", "manifest", "table"])
@pytest.mark.parametrize("step", ["import", "wrpr", "reorder", "layout"])
def test_what_is_lost_is_made_again(prepared, tmp_path, step, how):
    harm = damage(how)
    with Watched(harm) as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert harm.done
    # Once each, with what it was made of, which may have been dropped by then.
    lost = 0 if how == "table" else len(harm.done)
    assert lost <= cluster.seen.recovered <= 4 * lost


@pytest.fixture
def small_store(tmp_path):
    """A store on a file system of 40 KiB, which `grow` makes larger."""
    store = tmp_path / "store"
    store.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=40k", "tmpfs", str(store)], capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs needs root")
    yield store
    subprocess.run(["umount", str(store)], check=True)


@pytest.mark.parametrize("step", STEPS)
def test_a_store_that_fills_up(prepared, tmp_path, small_store, step):
    """One error that says so; with more room the same run goes on."""
    options = ClusterOptions(shards=3, workers=2, store=str(small_store))
    with Watched(options=options) as cluster, pytest.raises(StorageError, match=r"no space left: .* needed, .* free"):
        make(step, prepared, tmp_path / "out", cluster)
    assert not (tmp_path / "out").exists()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_store)], check=True)
    with Watched(options=options) as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert cluster.seen.retried == 0
    assert cluster.seen.skipped > 0
    assert not list(small_store.iterdir())
