"""The whole job on replicas of published datasets, by the files in examples/datasets: run, check, one epoch."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tiering
from benchmarks.replicas import replicate
from tiering.artifacts.manifest import Relation
from tiering.formats.graph import Graph
from tiering.loader.layout import TieredLayout

pytestmark = pytest.mark.slow

torch = pytest.importorskip("torch")
JOBS = Path(__file__).resolve().parent.parent / "examples" / "datasets"
SHARES = {"igb-full": 4e-6, "igbh-full": 4e-6, "mag240m": 1e-5, "ogbn-papers100m": 1e-5, "ogbn-products": 5e-4,
          "ogbn-arxiv": 0.01, "reddit": 0.005, "uk-2006-05": 2e-5, "friendster": 2e-5,
          "wikikg90m-v2": 2e-5}  # fmt: skip
"""Size of each replica."""


@pytest.mark.parametrize("job", sorted(JOBS.glob("*.toml")), ids=lambda job: job.stem)
def test_a_job_runs_on_a_replica_and_batches_hold_what_the_files_do(
    job: Path, tmp_path: Path, tiering_cli: Callable[..., Any]
) -> None:
    chain = tmp_path / shutil.copy(job, tmp_path)
    folder = re.search(r'^path = "(.*)"', job.read_text(), re.MULTILINE)[1]
    specification = replicate(job.stem, tmp_path / folder, SHARES[job.stem])
    chain.write_text(chain.read_text().replace(f'spec = "{job.stem}"', f'spec = "{specification}"'))
    tiering_cli("run", chain).ok()
    out = tmp_path / f"{folder}-prepared"
    tiering_cli("check", out / "layout", "--full").ok()
    graph = tiering.open(out / "graph")  # in the order of the files
    layout = tiering.open(out / "layout")
    assert isinstance(graph, Graph)
    assert isinstance(layout, TieredLayout)
    seeds, train = [], next((t for t in graph.node_types if "train" in graph.splits(t)), graph.node_types[0])
    given = graph.split("train", train) if "train" in graph.splits(train) else np.arange(0, graph.num_nodes(train), 3)
    own = {} if "train" in graph.splits(train) else {"seeds": layout.old_to_new(train)[given], "node_type": train}
    edges = {relation: in_edges(graph, relation) for relation in graph.relations}
    with layout:
        for batch in layout.loader(fanouts=[4, 3], batch_size=64, **own):
            ids = {t: layout.new_to_old(t)[nodes.numpy()] for t, nodes in batch.nodes.items()}
            seeds.append(layout.new_to_old(train)[batch.seeds.numpy()])
            for node_type, rows in batch.features.items():
                table = graph.feature_table(node_type)
                assert table is not None
                assert np.array_equal(rows.numpy().view(np.uint8), table.open()[ids[node_type]].view(np.uint8))
            labels = graph.labels(train)
            if labels is None:
                assert batch.y is None
            else:
                assert np.array_equal(batch.y.numpy(), labels[seeds[-1]])
            for hop in batch.hops:
                for relation, pairs in hop.items():
                    src, dst = ids[relation[0]][pairs[0].numpy()], ids[relation[2]][pairs[1].numpy()]
                    assert np.isin(src * graph.num_nodes(relation[2]) + dst, edges[relation]).all()
    assert np.array_equal(np.sort(np.concatenate(seeds)), np.sort(given))


def in_edges(graph: Graph, relation: Relation) -> Any:
    """Source and destination of every edge as one number."""
    indptr, indices = graph.csc(relation)
    dst = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return indices.astype(np.int64) * graph.num_nodes(relation[2]) + dst


@pytest.mark.parametrize("job", sorted(JOBS.glob("*.toml")), ids=lambda job: job.stem)
def test_a_job_is_foreseen_without_data(job: Path, tmp_path: Path, tiering_cli: Callable[..., Any]) -> None:
    shutil.copy(job, tmp_path)
    done = tiering_cli("run", tmp_path / job.name, "--dry-run", "--memory", "300GiB")
    assert done.out.count("total") >= 4
    assert "no training node reaches" not in done.out  # all that is prepared is read
    assert done.code == 0 or "needed" in done.err  # this disk may have no room for the real one
    assert sorted(path.name for path in tmp_path.iterdir()) == [job.name]
