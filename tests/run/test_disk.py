"""The dry run names the disk that shuffle files of tasks take, and refuses a store without room for them."""

from __future__ import annotations

import numpy as np
import pytest

from tiering import pipeline
from tiering.run import plan
from tiering.run.job import ClusterOptions
from tiering.run.store import Store


def nbytes(folder):
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def fullest(monkeypatch, tmp_path):
    """The most bytes that the store had before something was removed of it."""
    seen, clear = [0], Store.clear

    def measured(store, folder):
        seen[0] = max(seen[0], nbytes(store.root))
        clear(store, folder)

    monkeypatch.setattr(Store, "clear", measured)
    return seen


def stages(folder, cluster):
    """Each stage's name, and a function that runs it, or estimates it."""

    def both(name, *inputs, **options):
        def work(dry_run):
            run = "layout" if name == "layout" else f"{name}_graph"
            function = getattr(pipeline, f"estimate_{name}" if dry_run else run)
            return function(*inputs, cluster=cluster, **options)

        return work

    graph, ordered = folder / "graph", folder / "ordered"
    yield "import", both("import", folder / "data", graph, edge_ids=True)
    for method, options in (
        ("wrpr", {"sweeps": 3}), ("rpr", {"tolerance": 0.1}), ("vip", {"fanouts": [5, 5]}),
        ("presample", {"fanouts": [5, 5], "batch_size": 100}), ("degree", {}),
    ):  # fmt: skip
        yield method, both("score", graph, folder / method, method, **options)
    yield "reorder", both("reorder", graph, folder / "wrpr", ordered, features=True)
    for dtype in ("auto", "int8"):
        ssd = {"cpu": "20%", "ssd": [folder / f"ssd-{dtype}"]}
        yield f"layout {dtype}", both("layout", ordered, folder / dtype, dtype=dtype, **ssd)


def test_the_store_takes_what_the_dry_run_says(tmp_path, fullest, monkeypatch):
    random, nodes, edges = np.random.default_rng(0), 20_000, 200_000
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "edge_index.npy", random.integers(0, nodes, (2, edges)))
    np.save(tmp_path / "data" / "node_feat.npy", random.random((nodes, 40), np.float32))
    np.save(tmp_path / "data" / "train_idx.npy", random.permutation(nodes)[:1000])
    store = tmp_path / "store"
    found = {}
    for name, work in stages(tmp_path, ClusterOptions(shards=3, workers=1, store=store)):
        (stage,) = work(dry_run=True).plans
        said = stage.needed().get(store, 0)
        assert said == max((step.disk_scratch for step in stage.steps if step.in_store), default=0)
        with monkeypatch.context() as full:
            full.setattr(plan, "disk_of", lambda path: int(store in (path, *path.parents)))
            full.setattr(plan, "disk_free", lambda path: 0 if path == store else 1 << 40)
            assert any(str(store) in line for line in work(dry_run=True).shortages()) == bool(said)
        fullest[0] = 0
        work(dry_run=False)
        found[name] = fullest[0], said
    records = 64 << 10
    assert not {name: both for name, both in found.items() if not 100_000 < both[0] <= both[1] + records}
    assert not {name: both for name, both in found.items() if both[1] > 2 * both[0]}, found
