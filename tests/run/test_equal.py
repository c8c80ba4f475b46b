"""Every artifact that tasks make is the single process's, byte for byte, however the work is cut and shared."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from folders import contents, contents_of
from odd_dataset import write_odd_dataset

SCORES = {
    "degree": ["--method", "degree"],
    "presample": ["--method", "presample", "--fanouts", "4,3", "--epochs", "3", "--batch-size", "16"],
    "vip": ["--method", "vip", "--fanouts", "4,3"],
}
"""The first orders nodes: many have the same score."""
TIERS = ["--gpu", "5%", "--peer", "3x2%", "--cpu", "30%"]


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Two datasets by name: one type with every oddity, and several types and relations."""
    from tiering.datasets.generated import generate

    folder = tmp_path_factory.mktemp("cluster")
    generate(folder / "types", nodes=900, edges=9000, dim=5, hetero=True, featureless=["institute"])
    return {"odd": write_odd_dataset(folder / "odd"), "types": folder / "types"}


def run_all(cli, dataset: Path, work: Path, *more: str) -> dict[str, str]:
    """Every step, in `work`; digests of what is there at the end."""
    work.mkdir(exist_ok=True)
    graph, reordered = work / "graph", work / "reordered"
    cli("import", dataset, "--out", graph, "--edge-ids", *more).ok()
    for name, options in SCORES.items():
        cli("score", graph, "--out", work / name, *options, *more).ok()
    cli("reorder", graph, "--scores", work / "degree", "--out", reordered, *more).ok()
    cli("reorder", graph, "--scores", work / "vip", "--out", work / "ranked", "--features", *more).ok()
    ssd = ["--ssd", work / "ssd0", "--ssd", work / "ssd1"]
    cli("layout", reordered, "--out", work / "layout", *TIERS, *ssd, "--page", "512", *more).ok()
    return contents(work)


@pytest.fixture(scope="module")
def expected():
    """Digests of what one process makes, by dataset."""
    return {}


def compare(cli, datasets, expected, tmp_path_factory, name: str, more: list[str]) -> None:
    work = tmp_path_factory.getbasetemp() / f"equal-{name}"
    if name not in expected:
        expected[name] = run_all(cli, datasets[name], work)
        empty(work)
    found = run_all(cli, datasets[name], work, *more)
    empty(work)
    assert found == expected[name]


def empty(work: Path) -> None:
    """Room for the next, at the same place: layouts name their images by it."""
    import shutil

    shutil.rmtree(work)


ALL = [(name, shards, workers) for name in ("odd", "types") for shards in (1, 2, 3, 8, 16) for workers in (1, 2, 4)]
SOME = [("odd", 3, 1), ("odd", 8, 4), ("types", 5, 2)]


@pytest.mark.parametrize(
    ("name", "shards", "workers"), [*SOME, *(pytest.param(*one, marks=pytest.mark.long) for one in ALL)]
)
def test_threads_make_the_same_bytes(tiering_cli, datasets, expected, tmp_path_factory, name, shards, workers):
    more = ["--executor", "local", "--shards", str(shards), "--workers", str(workers)]
    compare(tiering_cli, datasets, expected, tmp_path_factory, name, more)


def test_nothing_is_left_behind(tiering_cli, datasets, tmp_path):
    more = ["--executor", "local", "--shards", "3", "--store", str(tmp_path / "store")]
    tiering_cli("import", datasets["odd"], "--out", tmp_path / "graph", *more).ok()
    tiering_cli("import", datasets["odd"], "--out", tmp_path / "other", "--executor", "local").ok()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["graph", "other"]


def test_a_chain(tiering_cli, datasets, tmp_path):
    config = tmp_path / "chain.toml"
    config.write_text(
        f'[dataset]\npath = "{datasets["types"]}"\n[score]\nmethod = "degree"\n[layout]\ncpu = "20%"\nssd = ["ssd"]\n'
    )
    tiering_cli("run", config).ok()
    expected = contents(tmp_path)
    result = tiering_cli("run", config, "--force", "--executor", "local", "--shards", "5")
    assert all(step in result.ok().out for step in ("import", "score", "reorder", "layout"))
    assert contents(tmp_path) == expected


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--shards", "3"], ["--shards", "--executor"]),
        (["--executor", "local", "--shards", "0"], ["shards", "1 to 65536", "0"]),
        (["--executor", "local", "--task-memory", "1MiB"], ["task memory", "64MiB"]),
        (["--executor", "slurm"], ["executor", "local or ray", "slurm"]),
        (["--executor", "local", "--address", "auto"], ["address", "ray"]),
        (["--executor", "local", "--store", "ftp://host/a"], ["store", "ftp"]),
    ],
)
def test_refused(tiering_cli, datasets, tmp_path, given, words):
    tiering_cli("import", datasets["odd"], "--out", tmp_path / "graph", *given).refused(*words)
    assert not (tmp_path / "graph").exists()


def test_ids_out_of_range_are_named_as_by_one_process(tiering_cli, tmp_path):
    edges = np.random.default_rng(0).integers(0, 50, (2, 400))
    edges[1, 333] = 61
    (tmp_path / "bad").mkdir()
    np.save(tmp_path / "bad" / "edge_index.npy", edges)
    asked = ["import", tmp_path / "bad", "--out", tmp_path / "graph", "--num-nodes", "50"]
    alone = tiering_cli(*asked).refused("edge 333", "61")
    assert tiering_cli(*asked, "--executor", "local", "--shards", "4").refused("edge 333", "61") == alone


def test_edges_that_lie_in_no_file_of_their_own(tiering_cli, tmp_path):
    """Parquet and text are read by who leads, and handed to tasks."""
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    random = np.random.default_rng(1)
    edges = random.integers(0, 90, (2, 1500))
    columns = {"src": edges[0], "dst": edges[1], "weight": random.random(1500)}
    parquet.write_table(pa.table(columns), tmp_path / "edges.parquet")
    np.savetxt(tmp_path / "edges.txt", edges.T, fmt="%d")
    for name in ("edges.parquet", "edges.txt"):
        alone, found = tmp_path / f"{name}-alone", tmp_path / f"{name}-tasks"
        tiering_cli("import", tmp_path / name, "--out", alone, "--edge-ids").ok()
        more = ["--edge-ids", "--executor", "local", "--shards", "3"]
        tiering_cli("import", tmp_path / name, "--out", found, *more).ok()
        assert contents_of(found) == contents_of(alone)


def empty_relations():
    """Types without nodes, relations without edges, one type that is the destination of three relations."""
    torch = pytest.importorskip("torch")
    data = pytest.importorskip("torch_geometric.data").HeteroData()
    draws = torch.Generator().manual_seed(0)

    def edges(count: int, sources: int, destinations: int):
        return torch.stack([torch.randint(0, n, (count,), generator=draws) for n in (sources, destinations)])

    for name, nodes in {"a": 50, "b": 30, "c": 4, "z": 0}.items():
        data[name].num_nodes = nodes
    data["a", "x", "b"].edge_index, data["b", "w", "a"].edge_index = edges(300, 50, 30), edges(100, 30, 50)
    data["a", "y", "a"].edge_index = data["c", "v", "b"].edge_index = torch.empty((2, 0), dtype=torch.long)
    data["a"].train_mask = torch.arange(50) < 9
    return data


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("vip", {"fanouts": [{"x": 3, "w": 0, "y": 1, "v": 0}, {"x": 0, "w": 2, "y": 0, "v": 0}, 2]}),
        ("hybrid", {"fanouts": [3, 2], "batch_size": 3}),
        *(
            pytest.param(method, options, marks=pytest.mark.slow)
            for method, options in [
                ("rpr", {"tolerance": 0.01}),
                ("wrpr", {"teleport": "train", "sweeps": 2}),
                ("vip", {"fanouts": [3, 2], "frontier": "new", "sampler": "replacement"}),
                ("hybrid", {"fanouts": [3, 2], "batch_size": 3, "epochs": 1}),
                ("degree", {}),
            ]
        ),
    ],
)
def test_types_and_relations_of_nothing(tmp_path, method, options):
    import tiering
    from tiering.run.carrier import ClusterOptions

    graph = tiering.import_graph(empty_relations(), tmp_path / "graph")
    scores = tiering.score_graph(graph, tmp_path / "scores", method, **options)
    ordered = tiering.reorder_graph(graph, scores, tmp_path / "ordered")
    for shards in (2, 5):
        cluster = ClusterOptions(shards=shards)
        found = tiering.score_graph(graph, tmp_path / f"scores-{shards}", method, cluster=cluster, **options)
        assert contents_of(found.path) == contents_of(scores.path)
        found = tiering.reorder_graph(graph, scores, tmp_path / f"ordered-{shards}", cluster=cluster)
        assert contents_of(found.path) == contents_of(ordered.path)


def test_a_real_graph_of_many_columns(tiering_cli, shared_data, tmp_path):
    """More columns than those that are all of high degree: the two kinds are summed one after the other."""
    import tiering
    from tiering.run.carrier import ClusterOptions

    graph = tiering.import_graph(shared_data / "cnr-2000", tmp_path / "graph")
    scores = tiering.score_graph(graph, tmp_path / "scores", "wrpr", train="1%", sweeps=2)
    found = tiering.score_graph(
        graph, tmp_path / "found", "wrpr", train="1%", sweeps=2, cluster=ClusterOptions(shards=4)
    )
    assert contents_of(found.path) == contents_of(scores.path)


@pytest.mark.parametrize(
    ("dim", "page"), [(350, 512), (1250, 4096), (1024, 4096), (60, 512), (2100, 512)]
)  # more than a page, with padding and without; a page; several to a page
def test_rows_and_pages(tmp_path, dim, page):
    import tiering
    from tiering.run.carrier import ClusterOptions

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
        files = {
            name: digest for name, digest in contents_of(out).items() if name not in ("manifest.json", "checksums")
        }
        made.append((images, files))
    assert all(one == made[0] for one in made)
