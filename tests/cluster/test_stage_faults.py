"""Something goes wrong inside a stage: the same bytes in the end, and no more is done again than was lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tiering
from tiering.cluster import manifests, running, tasks
from tiering.cluster.running import Job, RetryOptions
from tiering.cluster.session import Cluster, ClusterOptions
from tiering.errors import StorageError

STEPS = ["import", "degree", "wrpr", "presample", "reorder", "layout"]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A dataset, and what one process makes of it."""
    folder = tmp_path_factory.mktemp("faults")
    random = np.random.default_rng(5)
    (folder / "data").mkdir()
    np.save(folder / "data" / "edge_index.npy", random.integers(0, 400, (2, 3000)))
    np.save(folder / "data" / "node_feat.npy", random.random((400, 9)).astype(np.float32))
    np.save(folder / "data" / "train_idx.npy", random.permutation(400)[:60])
    for step in STEPS:
        make(step, folder, folder / f"{step}-expected")
    return folder


def make(step: str, folder: Path, out: Path, cluster: Cluster | None = None) -> None:
    """One step, from what one process has made before it."""
    graph, ordered = folder / "import-expected", folder / "reorder-expected"
    if step == "import":
        tiering.import_graph(folder / "data", out, edge_ids=True, cluster=cluster)
    elif step == "reorder":
        tiering.reorder_graph(graph, folder / "degree-expected", out, cluster=cluster)
    elif step == "layout":
        tiering.write_layout(ordered, out, gpu="5%", cpu="20%", ssd=[folder / "ssd"], cluster=cluster)
    else:
        options = {"wrpr": {"sweeps": 2}, "presample": {"fanouts": [3, 2], "batch_size": 16}}.get(step, {})
        tiering.score_graph(graph, out, step, cluster=cluster, **options)


def assert_same(step: str, folder: Path, out: Path) -> None:
    """The files of both artifacts; layouts name their images by where they lie."""
    expected = folder / f"{step}-expected"
    for file in sorted(path for path in expected.rglob("*") if path.is_file()):
        if step == "layout" and file.name in ("manifest.json", "checksums"):
            continue
        assert (out / file.relative_to(expected)).read_bytes() == file.read_bytes(), file
    if step == "layout":
        layouts = [tiering.open(one).artifact for one in (expected, out)]
        images = [[path.read_bytes() for path in layout.images] for layout in layouts]
        assert images[0] == images[1]


class Watched(Cluster):
    """A session whose counters outlive its stages, and that harms what stages have left."""

    def __init__(self, harm=None, retry: RetryOptions | None = None) -> None:
        super().__init__(ClusterOptions(shards=3, workers=2), retry)
        self.harm, self.seen = harm, running.Counters()

    def job(self, writer) -> Job:
        job = super().job(writer)
        job.counters = self.seen
        run, harm = job.run, self.harm

        def harmed(stage):
            made = run(stage)
            if harm is not None:
                harm(job, stage, made)
            return made

        job.run = harmed
        return job


def damage(how: str):
    """Harms the segment of one task of every stage whose segments others read, once; how many were."""
    done: list[str] = []

    def harm(job: Job, stage, made) -> None:
        key = made[0]["segment"]["key"] if made else ""
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
            manifest = Path(job.store.url) / manifests.manifest_key(job.name, stage.name, 0)
            manifest.write_bytes(manifest.read_bytes()[:-5])

    harm.done = done
    return harm


@pytest.mark.parametrize("how", ["flipped", "cut", "removed", "manifest"])
@pytest.mark.parametrize("step", ["import", "wrpr", "reorder", "layout"])
def test_what_is_lost_is_made_again_and_nothing_else(prepared, tmp_path, step, how):
    harm = damage(how)
    with Watched(harm) as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert harm.done
    assert 0 < cluster.seen.recovered <= len(harm.done)


def test_without_another_try_it_would_fail(prepared, tmp_path):
    with Watched(damage("flipped"), RetryOptions(attempts=1)) as cluster, pytest.raises(manifests.LostError):
        make("reorder", prepared, tmp_path / "out", cluster)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("step", STEPS)
def test_an_error_of_the_disk_passes(prepared, tmp_path, monkeypatch, step):
    """Every third attempt of a stage fails; each is tried again."""
    count = [0]
    whole = tasks.run_attempt

    def failing(*arguments, **more):
        count[0] += 1
        if count[0] % 3 == 0 and not more.get("given"):
            raise StorageError(5, "the disk failed")
        return whole(*arguments, **more)

    monkeypatch.setattr(tasks, "run_attempt", failing)
    with Watched() as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert cluster.seen.retried == len(cluster.seen.errors) > 2


PROGRAM = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import test_stage_faults as here
from tiering.cluster import tasks

whole, count = tasks.run_attempt, [0]

def killed(*arguments, **more):
    count[0] += 1
    if count[0] == int(sys.argv[5]):
        os.kill(os.getpid(), 9)
    return whole(*arguments, **more)

tasks.run_attempt = killed
with here.Watched() as cluster:
    here.make(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]), cluster)
"""


@pytest.mark.parametrize("step", STEPS)
def test_a_killed_lead_goes_on(prepared, tmp_path, step):
    here = str(Path(__file__).parent)
    command = [sys.executable, "-c", PROGRAM, here, step, str(prepared), str(tmp_path / "out"), "7"]
    died = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert not (tmp_path / "out").exists()
    with Watched() as cluster:
        make(step, prepared, tmp_path / "out", cluster)
    assert_same(step, prepared, tmp_path / "out")
    assert cluster.seen.skipped >= 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out"]


def arrival_order(monkeypatch) -> None:
    """Chunks are joined as if the last had come first."""
    part = tasks.TaskContext.part

    def other(self, stage, index, number=0):
        if stage.endswith(".buckets"):
            index = self.params["parts"] - 1 - index
        return part(self, stage, index, number)

    monkeypatch.setattr(tasks.TaskContext, "part", other)


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
    from tiering.cluster.stages import ranks

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
