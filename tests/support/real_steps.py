"""Steps of the pipeline as jobs that go wrong: what one process makes of a dataset, and tasks that are watched."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import tiering
from tiering.run.job import Carrier, ClusterOptions, Counters, Job, RetryOptions

STEPS = ["import", "wrpr", "vip", "presample", "reorder", "layout"]
OPTIONS = {
    "wrpr": {"sweeps": 2}, "vip": {"fanouts": [3, 2], "batch_size": 16},
    "presample": {"fanouts": [3, 2], "batch_size": 16},
}  # fmt: skip


def prepare(folder: Path) -> Path:
    """A dataset, and what one process makes of it, in a folder."""
    random = np.random.default_rng(5)
    (folder / "data").mkdir()
    np.save(folder / "data" / "edge_index.npy", random.integers(0, 400, (2, 3000)))
    np.save(folder / "data" / "node_feat.npy", random.random((400, 9)).astype(np.float32))
    np.save(folder / "data" / "train_idx.npy", random.permutation(400)[:60])
    for step in STEPS:
        make(step, folder, folder / f"{step}-expected")
    return folder


def make(step: str, folder: Path, out: Path, cluster: Carrier | None = None) -> None:
    """One step, from what one process has made before it."""
    graph, ordered = folder / "import-expected", folder / "reorder-expected"
    if step == "import":
        tiering.import_graph(folder / "data", out, edge_ids=True, cluster=cluster)
    elif step == "reorder":
        tiering.reorder_graph(graph, folder / "wrpr-expected", out, cluster=cluster)
    elif step == "layout":
        tiering.write_layout(ordered, out, gpu="5%", cpu="20%", ssd=[folder / "ssd"], cluster=cluster)
    else:
        tiering.score_graph(graph, out, step, cluster=cluster, **OPTIONS.get(step, {}))


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


class Watched(Carrier):
    """A session whose counters outlive its stages, and that harms what stages have left."""

    def __init__(self, harm=None, retry: RetryOptions | None = None, options: ClusterOptions | None = None) -> None:
        super().__init__(options or ClusterOptions(shards=3, workers=2), retry)
        self.harm, self.seen = harm, Counters()

    def job(self, writer) -> Job:
        job = super().job(writer)
        job.counters = self.seen
        run, harm = job.run, self.harm

        def harmed(stage, only=None):
            made = run(stage, only)
            if harm is not None:
                harm(job, stage, made)
            return made

        job.run = harmed
        return job
