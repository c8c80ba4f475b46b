"""Something goes wrong inside a stage: the same bytes in the end, and no more is done again than was lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import real_steps
from real_steps import STEPS, Watched, assert_same, make, prepare

from tiering.artifacts.writer import ArtifactWriter
from tiering.errors import StorageError
from tiering.run import pieces
from tiering.run import step as tasks
from tiering.run.carrier import ClusterOptions
from tiering.run.job import Job, RetryOptions
from tiering.run.store import ObjectWriter


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
        elif how == "manifest":
            manifest = Path(job.store.url) / pieces.record_key(job.name, stage.name, 0)
            manifest.write_bytes(manifest.read_bytes()[:-5])

    harm.done = done
    return harm


@pytest.mark.parametrize("how", ["flipped", "cut", "removed", "manifest"])
@pytest.mark.parametrize("step", ["import", "wrpr", "reorder", "layout"])
def test_what_is_lost_is_made_again(prepared, tmp_path, step, how):
    harm = damage(how)
    with Watched(harm) as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert harm.done
    # Once each, with what it was made of, which may have been dropped by then.
    assert len(harm.done) <= cluster.seen.recovered <= 4 * len(harm.done)


def test_without_another_try_it_would_fail(prepared, tmp_path):
    with Watched(damage("flipped"), RetryOptions(attempts=1)) as cluster, pytest.raises(pieces.LostError):
        make("reorder", prepared, tmp_path / "out", cluster)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("step", STEPS)
def test_an_error_of_the_disk_passes(prepared, tmp_path, monkeypatch, step):
    """Every third attempt of a stage fails; each is tried again."""
    count = [0]
    whole = tasks.run_attempt

    def failing(call, *arrays):
        count[0] += 1
        if count[0] % 3 == 0 and not arrays:
            raise StorageError(5, "the disk failed")
        return whole(call, *arrays)

    monkeypatch.setattr(tasks, "run_attempt", failing)
    with Watched() as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert cluster.seen.retried == len(cluster.seen.errors) > 2


PROGRAM = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import real_steps as here
from tiering.run import step as tasks

whole, count = tasks.run_attempt, [0]

def killed(*arguments):
    count[0] += 1
    if count[0] == int(sys.argv[5]):
        os.kill(os.getpid(), 9)
    return whole(*arguments)

tasks.run_attempt = killed
with here.Watched() as cluster:
    here.make(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), cluster)
"""


@pytest.mark.parametrize(
    "step", [pytest.param(step, marks=pytest.mark.slow if number > 1 else ()) for number, step in enumerate(STEPS)]
)
def test_a_killed_lead_goes_on(prepared, tmp_path, step):
    here = str(Path(real_steps.__file__).parent)
    command = [sys.executable, "-c", PROGRAM, here, step, str(prepared), str(tmp_path / "out"), "7"]
    died = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert not (tmp_path / "out").exists()
    with Watched() as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert cluster.seen.skipped >= 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("step", STEPS)
def test_files_in_their_place_are_not_made_again(prepared, tmp_path, monkeypatch, step):
    """Interrupted when all tasks had ended: the next run has none run."""
    commit = ArtifactWriter.commit

    def interrupted(writer, *arguments, **more):
        if not writer.prefix:
            raise KeyboardInterrupt
        return commit(writer, *arguments, **more)

    with monkeypatch.context() as patched, Watched() as cluster, pytest.raises(KeyboardInterrupt):
        patched.setattr(ArtifactWriter, "commit", interrupted)
        make(step, prepared, tmp_path / "out", cluster)
    assert cluster.seen.run > 0
    with Watched() as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert cluster.seen.run == 0


def arrival_order(monkeypatch) -> None:
    """Chunks are joined as if the last had come first."""
    part = tasks.TaskContext.read

    def other(self, stage, index, number=0, out=None):
        if stage.endswith(".scatter"):
            index = self.params["chunks"] - 1 - index
        return part(self, stage, index, number, out)

    monkeypatch.setattr(tasks.TaskContext, "read", other)


def sums_of_parts(monkeypatch) -> None:
    """Each block is summed by itself, and the sums are added."""
    from tiering import native

    class Separate:
        def __init__(self, count, shift, bins, edges) -> None:
            self.total, self.count = np.zeros(count), count

        def add(self, sources, columns, values, threads) -> None:
            if values is not None:
                self.total = self.total + np.bincount(sources, values[columns], minlength=self.count)

        def take(self):
            return self.total

    monkeypatch.setattr(native, "BlockSums", Separate)


def keys_alone(monkeypatch) -> None:
    """Ranges of ranks are sorted by score; ties stay as a reversed input has them."""
    from tiering.reorder.tasks import order as ranks

    sort = ranks.native.sort_by_score

    class Sorting:
        def __getattr__(self, name):
            return getattr(sys.modules["tiering.native"], name)

        @staticmethod
        def sort_by_score(scores, threads):
            return scores.size - 1 - sort(np.ascontiguousarray(scores[::-1]), threads)

    monkeypatch.setattr(ranks, "native", Sorting())


@pytest.mark.parametrize(
    ("mutant", "step"), [(arrival_order, "import"), (sums_of_parts, "wrpr"), (keys_alone, "reorder")]
)
def test_mutants_are_caught(prepared, tmp_path, monkeypatch, mutant, step):
    mutant(monkeypatch)
    with Watched() as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    with pytest.raises(AssertionError):
        assert_same(step, prepared, tmp_path / "out")


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


@pytest.mark.parametrize("step", STEPS)
def test_an_error_of_the_disk_below_the_store(prepared, tmp_path, monkeypatch, step):
    """One write of a segment in sixty fails, in the midst of it."""
    whole, count = ObjectWriter.write, [55]

    def write(self, data):
        count[0] += 1
        if count[0] % 60 == 0:
            whole(self, data[: data.size // 2])
            raise StorageError(errno.EIO, f"{self._path}: Input/output error")
        whole(self, data)

    monkeypatch.setattr(ObjectWriter, "write", write)
    with Watched() as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert cluster.seen.retried > 0
