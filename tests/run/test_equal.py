"""Artifacts that tasks make are the single process's, byte for byte; tests/ledger compares whole chains."""

from __future__ import annotations

import numpy as np
import pytest
from toy_datasets import tree_bytes, write_odd_types

import tiering
from tiering.artifacts import checksum
from tiering.errors import InputError
from tiering.reorder.tasks import order, relabel
from tiering.run import files, move_tasks
from tiering.run.job import ClusterOptions


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--shards", "3"], ["--shards", "--executor"]),
        (["--executor", "local", "--shards", "0"], ["shards", "1 to 65536", "0"]),
        (["--executor", "local", "--workers", "0"], ["workers", "1 or more", "0"]),
        (["--executor", "local", "--task-memory", "1MiB"], ["--task-memory", "64MiB"]),
        (["--executor", "slurm"], ["executor", "local or ray", "slurm"]),
        (["--executor", "local", "--address", "auto"], ["address", "ray"]),
        (["--executor", "local", "--store", "ftp://host/a"], ["store", "ftp"]),
    ],
)
def test_refused(tiering_cli, tiny_dataset, tmp_path, given, words):
    tiering_cli("import", tiny_dataset, "--out", tmp_path / "graph", *given).refused(*words)
    assert not (tmp_path / "graph").exists()


NONE = dict.fromkeys("xwytvu", 0)
MANIFESTS = ("manifest.json", "checksums")  # of layouts: they name the stripe files by their paths


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("vip", {"fanouts": [{**NONE, "x": 3, "y": 1}, {**NONE, "w": 2}, 2]}),
        ("hybrid", {"fanouts": [3, 2], "batch_size": 3}),
        ("degree", {}),
        *(
            pytest.param(method, options, marks=pytest.mark.slow)
            for method, options in [
                ("rpr", {"teleport": "train", "tolerance": 0.01}),
                ("wrpr", {"teleport": "train", "sweeps": 2}),
                ("vip", {"fanouts": [3, 2], "frontier": "new", "sampler": "replacement"}),
                ("hybrid", {"fanouts": [3, 2], "batch_size": 3, "epochs": 1}),
            ]
        ),
    ],
)
def test_types_and_relations_of_nothing(tmp_path, method, options):
    graph = tiering.import_graph(write_odd_types(tmp_path / "data"), tmp_path / "graph")
    scores = tiering.score_graph(graph, tmp_path / "scores", method, **options)
    ordered = tiering.reorder_graph(graph, scores, tmp_path / "ordered")
    for shards in (2, 5):
        cluster = ClusterOptions(shards=shards)
        found = tiering.score_graph(graph, tmp_path / f"scores-{shards}", method, cluster=cluster, **options)
        assert tree_bytes(found.path) == tree_bytes(scores.path)
        found = tiering.reorder_graph(graph, scores, tmp_path / f"ordered-{shards}", cluster=cluster)
        assert tree_bytes(found.path) == tree_bytes(ordered.path)


def test_files_of_many_windows(tmp_path, monkeypatch):
    """Every file of some blocks is written by several tasks, whatever divides its rows, units and lists."""
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 4096)
    random, nodes, edges = np.random.default_rng(1), 5000, 30_000
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data/edge_index.npy", (random.random((2, edges)) ** 2 * nodes).astype(np.int64))
    np.save(tmp_path / "data/edge_weight.npy", random.random(edges))
    np.save(tmp_path / "data/node_feat.npy", random.random((nodes, 13), np.float32))
    np.save(tmp_path / "data/train_idx.npy", random.permutation(nodes)[:1000])
    steps, plain = [], files.files_step
    for module in (files, move_tasks, relabel, order):
        monkeypatch.setattr(module, "files_step", lambda *a: steps.append(plain(*a)) or steps[-1])

    def make(name, cluster):
        out = tmp_path / name
        graph = tiering.import_graph(tmp_path / "data", out / "graph", edge_ids=True, cluster=cluster)
        scores = tiering.score_graph(graph, out / "scores", "wrpr", cluster=cluster)
        rows = tiering.reorder_graph(graph, scores, out / "plain", cluster=cluster)
        ordered = tiering.reorder_graph(graph, scores, out / "ordered", features=True, cluster=cluster)
        made = [tree_bytes(one.path) for one in (graph, scores, rows, ordered)]
        for number, (source, more) in enumerate([(ordered, {}), (rows, {"page": 512}), (rows, {"dtype": "int8"})]):
            ssd = [out / f"ssd-{number}-{k}" for k in range(3)]
            tiering.write_layout(source, out / f"l{number}", peer="2x10%", cpu="15%", ssd=ssd, cluster=cluster, **more)
            assert tiering.check(out / f"l{number}", "full") == []
            made.append([path.read_bytes() for path in tiering.open(out / f"l{number}").artifact.images])
            made.append({k: v for k, v in tree_bytes(out / f"l{number}").items() if k not in MANIFESTS})
        return made

    expected = make("one", None)
    for shards in (3, 7):
        assert make(f"tasks-{shards}", ClusterOptions(shards=shards, workers=2)) == expected
    windows = {step.name.partition(".")[0]: len(step.params["windows"]) for step in steps}
    many = {name: count for name, count in windows.items() if count > 3}
    assert {"node__to__node", "relation-0", "order-0", "rows", "tables"} <= {*many}, windows


def test_columns_of_both_kinds_and_a_bin_of_several_pieces(tmp_path):
    """More columns than those that are all of high degree, and a source whose edges one piece does not hold."""
    random, nodes, hub = np.random.default_rng(1), 140_000, 1_300_000
    (tmp_path / "data").mkdir()
    ends = [(random.random(150_000) ** 3 * most).astype(np.int64) for most in (nodes // 2, nodes - 5000)]
    hub_ends = np.full(hub, 777), random.integers(0, nodes - 5000, hub)
    np.save(tmp_path / "data" / "edge_index.npy", np.hstack([ends, hub_ends]))
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph", num_nodes=nodes)
    scores = tiering.score_graph(graph, tmp_path / "scores", "wrpr", train="1%", sweeps=2)
    cluster = ClusterOptions(shards=4)
    found = tiering.score_graph(graph, tmp_path / "found", "wrpr", train="1%", sweeps=2, cluster=cluster)
    assert tree_bytes(found.path) == tree_bytes(scores.path)


@pytest.mark.parametrize(
    ("dim", "page"), [(350, 512), (1250, 4096), (1024, 4096), (60, 512), (2100, 512)]
)  # more than a page, with padding and without; a page; several to a page
def test_rows_and_pages(tmp_path, dim, page):
    random = np.random.default_rng(dim)
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "edge_index.npy", random.integers(0, 203, (2, 900)))
    np.save(tmp_path / "data" / "node_feat.npy", random.random((203, dim), np.float32))
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph")
    ordered = tiering.reorder_graph(graph, tiering.score_graph(graph, tmp_path / "s", "degree"), tmp_path / "ordered")
    made = []
    for number, shards in enumerate((None, 2, 5)):
        cluster = None if shards is None else ClusterOptions(shards=shards)
        places = {"ssd": [tmp_path / f"ssd{number}-{disk}" for disk in range(3)], "page": page}
        out = tmp_path / f"layout{number}"
        tiering.write_layout(ordered, out, gpu="5%", peer="2x10%", cpu="15%", cluster=cluster, **places)
        images = [path.read_bytes() for path in tiering.open(out).artifact.images]
        files = {name: digest for name, digest in tree_bytes(out).items() if name not in MANIFESTS}
        made.append((images, files))
    assert all(one == made[0] for one in made)


def test_a_number_that_a_codec_cannot_hold_is_named(tmp_path):
    (tmp_path / "data").mkdir()
    rows = np.zeros((300, 5), np.float32)
    rows[151, 2] = np.nan
    np.save(tmp_path / "data" / "edge_index.npy", np.zeros((2, 10), np.int64))
    np.save(tmp_path / "data" / "node_feat.npy", rows)
    graph = tiering.import_graph(tmp_path / "data", tmp_path / "graph", num_nodes=300)
    ordered = tiering.reorder_graph(graph, tiering.score_graph(graph, tmp_path / "s", "degree"), tmp_path / "ordered")
    with pytest.raises(InputError, match="row 151, column 2 is nan, which int8 cannot store"):
        tiering.write_layout(ordered, tmp_path / "out", cpu="100%", dtype="int8", cluster=ClusterOptions(shards=4))
