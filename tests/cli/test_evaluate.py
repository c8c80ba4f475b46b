"""`tiering evaluate` through the command line: tables, the JSON document, plots, refusals."""

from __future__ import annotations

import re
from pathlib import Path

import pytest


@pytest.fixture
def scored(chain):
    """Graph of 40 nodes with rows of 24 bytes, 20 of them training nodes; two scores."""
    return chain / "graph", ("--scores", chain / "degree", "--scores", chain / "scores")


@pytest.fixture(scope="module")
def hetero(make, tmp_path_factory):
    folder = tmp_path_factory.mktemp("types")
    size = "--nodes 2000 --edges 20000 --dim 8 --classes 3 --seed 2 --hetero --featureless fos"
    make("generate", folder / "data", *size.split()).ok()
    graph, scores = folder / "graph", folder / "wrpr"
    make("import", folder / "data", "--out", graph).ok()
    make("score", graph, "--method", "wrpr", "--out", scores).ok()
    return graph, ("--scores", scores)


BATCHES = ("--batch-size", 4, "--epochs", 2)


def test_document(tiering_cli, scored):
    graph, scores = scored
    tiers = ("--gpu", "10%", "--peer", "2x10%", "--cpu", "25%", "--ssd")
    found = tiering_cli("evaluate", graph, *scores, *BATCHES, *tiers, "--shares", "5%,0.25", "--json").ok().json
    assert set(found) == {
        *("shares", "hit_rates", "intervals", "cached_rows", "num_rows", "num_bytes", "touched_rows", "accesses"),
        *("batches", "rows_per_batch", "types", "tiers", "adjacency", "epochs", "parameters"),
        *("locality", "plot"),
    }
    assert found["shares"] == [0.05, 0.25]
    assert list(found["hit_rates"]) == ["degree", "wrpr", "oracle"]
    assert list(found["intervals"]) == ["degree", "wrpr"]
    assert [len(ends) for ends in found["intervals"]["wrpr"]] == [2, 2]
    assert found["cached_rows"]["oracle"] == [2, 10]
    assert (found["num_rows"], found["num_bytes"], found["batches"]) == (40, 960, 10)
    assert found["epochs"] == {"first": 0, "count": 2, "seen": {}, "overlap": []}
    assert found["parameters"] == {
        "fanouts": [10, 10, 10],
        "batch_size": 4,
        "frontier": "all",
        "sampler": "uniform",
        "seed": 0,
        "epochs": 2,
        "first_epoch": 0,
        "resamples": 200,
        "train_nodes": {"node": 20},
        "node_types": ["node"],
    }
    assert set(found["types"]["node"]) == {
        *("rows", "row_bytes", "row_bytes_from", "accesses", "access_share", "touched_rows"),
        *("hit_rates", "intervals", "cached_rows"),
    }
    plan = found["tiers"]
    sizes = {"gpu": "10%", "peer": "10%", "num_peers": 2, "cpu": "25%", "ssd": True}
    assert plan["capacities"] == {**sizes, "page_bytes": 4096, "block_bytes": 512}
    assert list(plan["scores"]) == ["degree", "wrpr", "oracle"]
    for entry in plan["scores"].values():
        assert list(entry) == ["links", "tiers", "types"]
        assert list(entry["links"]) == ["gpu_memory", "peer_link", "host_link", "ssd"]
        assert [tier["rows"] for tier in entry["tiers"].values()] == [4, 8, 10, 18]
        assert sum(link["share"] for link in entry["links"].values()) == pytest.approx(1)
        moved = sum(link["bytes_per_epoch"] for link in entry["links"].values())
        assert moved == pytest.approx(found["accesses"] * 24 / 2)
        assert set(entry["types"]["node"]) == {"links", "tiers"}
    assert plan["scores"]["oracle"]["links"]["ssd"]["interval"] is None


def test_tables(tiering_cli, scored):
    graph, scores = scored
    plain = tiering_cli("evaluate", graph, *scores, *BATCHES).ok()
    assert "±" in plain.out and "rows cached" in plain.out and "GPU memory" not in plain.out
    assert "epochs 0 to 1" in plain.out and plain.err == ""
    assert "±" not in tiering_cli("evaluate", graph, *scores, *BATCHES, "--resamples", 0).ok().out
    tiers = tiering_cli("evaluate", graph, *scores, *BATCHES, "--gpu", "10%", "--cpu", "auto").ok().out
    assert "Bytes moved per epoch, with gpu 10%, cpu auto" in tiers
    assert "host link" in tiers and "peer link" not in tiers and "SSD" not in tiers
    ssd = tiering_cli("evaluate", graph, *scores, *BATCHES, "--gpu", "10%", "--ssd", "--block", "4KiB").ok().out
    assert "bytes read from SSD" in ssd and "pages read from SSD" in ssd


def test_types_and_row_bytes(tiering_cli, hetero):
    graph, scores = hetero
    options = ("--fanouts", "4,4", *BATCHES, "--gpu", "5%", "--ssd")
    out = tiering_cli("evaluate", graph, *scores, *options).ok().out
    competing, read = out.split("Reads per epoch")
    assert "By node type" in competing and "institute" in competing and "fos" not in competing
    assert "features" in read and "paper:topic:fos" in read
    given = tiering_cli("evaluate", graph, *scores, *options, "--row-bytes", "fos=1KiB,paper=16", "--json").ok().json
    sizes = {name: (entry["row_bytes"], entry["row_bytes_from"]) for name, entry in given["types"].items()}
    assert sizes["fos"] == (1024, "given") and sizes["paper"] == (16, "given") and sizes["author"] == (32, "features")
    assert sum(entry["access_share"] for entry in given["types"].values()) == pytest.approx(1)
    assert set(given["tiers"]["scores"]["wrpr"]["types"]) == {"author", "fos", "institute", "paper"}


@pytest.mark.parametrize(
    ("sampler", "fanouts"), [("replacement", "3,3"), ("full", "-1"), ("ladies", "20,20"), ("pinsage", "3,3")]
)
def test_samplers(tiering_cli, scored, sampler, fanouts):
    graph, scores = scored
    walks = ("--num-walks", 5, "--walk-length", 3, "--restart", 0.3) if sampler == "pinsage" else ()
    judge = ("evaluate", graph, *scores, *BATCHES, "--sampler", sampler, "--fanouts", fanouts, *walks, "--json")
    found = tiering_cli(*judge).ok()
    assert found.json["parameters"]["sampler"] == sampler and found.err == ""
    assert found.json == tiering_cli(*judge, "--threads", 3).ok().json
    if walks:
        assert found.json["parameters"]["num_walks"] == 5
        note = tiering_cli("evaluate", graph, *BATCHES, *walks).ok().err
        assert "num walks, walk length, restart has no effect on sampler uniform" in note


def test_metapaths(tiering_cli, hetero, tmp_path):
    graph, scores = hetero
    judge = ("evaluate", graph, *scores, *BATCHES, "--sampler", "pinsage", "--fanouts", "3,3", "--num-walks", 8)
    path = ("--metapath", "rev_written_by, written_by")
    found = tiering_cli(*judge, *path, "--json").ok().json
    names = [name.split(":")[-2] if ":" in name else name for name in found["parameters"]["metapaths"][0]]
    assert names == ["rev_written_by", "written_by"]
    assert found["types"]["paper"]["accesses"] > 0 and found["types"]["author"]["accesses"] == 0
    tiering_cli(*judge, "--metapath", "likes").refused("likes")

    # What is scored by such walks is what they read: it beats wrpr under the same judge.
    how = (*BATCHES[:2], *judge[8:])
    tiering_cli("score", graph, *how, *path, "--method", "presample", "--out", tmp_path / "walks").ok()
    rates = tiering_cli(*judge, "--scores", tmp_path / "walks", *path, "--json").ok().json["hit_rates"]
    assert all(a >= b for a, b in zip(rates["presample"], rates["wrpr"], strict=True)), rates
    tiering_cli("score", graph, *how, "--metapath", "likes", "--out", tmp_path / "no").refused("likes")


def test_several_fanouts_and_their_plot(tiering_cli, scored, tmp_path):
    graph, scores = scored
    depths = ("--fanouts", "2,2", "--fanouts", "2,2,2")
    plot = tmp_path / "depths.png"
    made = tiering_cli("evaluate", graph, *scores, *BATCHES, *depths, "--json", "--plot", plot).ok()
    assert plot.stat().st_size > 10_000 and f"plot: {plot}" in made.err
    assert [each["parameters"]["fanouts"] for each in made.json["evaluations"]] == [[2, 2], [2, 2, 2]]
    single = tiering_cli("evaluate", graph, *scores, *BATCHES, "--fanouts", "2,2", "--json").ok().json
    assert made.json["evaluations"][0] == {key: value for key, value in single.items() if key != "plot"}
    out = tiering_cli("evaluate", graph, *scores, *BATCHES, *depths).ok().out
    assert "Fanouts 2,2: percent of" in out and "Fanouts 2,2,2: percent of" in out


def test_presampled_scores_are_judged_on_unseen_epochs(tiering_cli, scored, tmp_path):
    graph, _ = scored
    counted = ("--method", "presample", "--fanouts", "3,3", "--batch-size", 4, "--epochs", 3)
    tiering_cli("score", graph, *counted, "--out", tmp_path / "future").ok()
    judge = ("evaluate", graph, "--scores", tmp_path / "future", "--fanouts", "3,3", "--batch-size", 4, "--epochs", 3)
    unseen = tiering_cli(*judge, "--json").ok()
    assert unseen.json["epochs"] == {"first": 3, "count": 3, "seen": {"presample": [0, 3]}, "overlap": []}
    assert unseen.err == ""
    seen = tiering_cli(*judge, "--json", "--first-epoch", 0).ok()
    assert seen.json["hit_rates"]["presample"] == seen.json["hit_rates"]["oracle"]
    assert seen.json["epochs"]["overlap"] == ["presample"]
    assert "presample has counted epochs 0 to 2 of this same run" in seen.err


def test_a_graph_without_features_says_what_was_assumed(tiering_cli, tmp_path, tiny_dataset):
    (tiny_dataset / "node_feat.npy").unlink()
    tiering_cli("import", tiny_dataset, "--out", tmp_path / "graph").ok()
    judge = ("evaluate", tmp_path / "graph", *BATCHES, "--gpu", 4, "--cpu", "auto")
    assumed = tiering_cli(*judge).ok()
    assert "every row counts as 1 B" in assumed.err and "Rows moved per epoch" in assumed.out
    given = tiering_cli(*judge, "--row-bytes", "2KiB", "--gpu", "8KiB").ok()
    assert given.err == "" and "Bytes moved per epoch" in given.out


def test_the_loader_moves_what_was_foretold(tiering_cli, hetero, tmp_path):
    """Rows and bytes that two epochs of training read from each tier, by node type, are those of `evaluate`."""
    pytest.importorskip("torch")
    import tiering

    graph, scores = hetero
    reordered, layout, sizes = tmp_path / "reordered", tmp_path / "layout", ("--gpu", "5%", "--peer", "2x4%")
    tiering_cli("reorder", graph, *scores, "--out", reordered).ok()
    tiering_cli("layout", reordered, *sizes, "--cpu", "20%", "--ssd", tmp_path / "disk", "--out", layout).ok()
    judge = ("evaluate", graph, *scores, "--fanouts", "4,3", "--batch-size", 32, "--epochs", 2, "--seed", 9)
    found = tiering_cli(*judge, *sizes, "--cpu", "20%", "--ssd", "--json").ok().json["tiers"]["scores"]["wrpr"]
    with tiering.open(layout) as opened:
        loader = opened.loader("train", fanouts=[4, 3], batch_size=32, seed=9)
        for epoch in range(2):
            for _ in loader.epoch(epoch):
                pass
        served = loader.counters()
    for node_type, entry in found["types"].items():
        for tier, foretold in entry["tiers"].items():
            assert served[node_type]["tiers"][tier]["rows"] == 2 * foretold["reads_per_epoch"]
    for tier, links in (("cpu", "host_link"), ("ssd", "ssd")):
        moved = sum(entry["tiers"][tier]["bytes"] for entry in served.values())
        assert moved == 2 * found["links"][links]["bytes_per_epoch"] > 0


def test_the_code_in_the_docs_runs(chain, repository, monkeypatch):
    monkeypatch.chdir(chain)
    (code,) = re.findall(r"^```python\n(.*?)^```$", (repository / "docs/evaluate.md").read_text(), re.M | re.S)
    names: dict[str, object] = {}
    exec(compile(code, "docs/evaluate.md", "exec"), names)  # noqa: S102 - our own page
    assert (chain / "curves.png").stat().st_size > 10_000


REFUSALS = {
    "shares": (["--shares", "1%,many"], ["--shares", "many"]),
    "second fanouts": (["--fanouts", "3,3", "--fanouts", "0"], ["fanouts"]),
    "no tier for the rest": (["--gpu", "10%", "--cpu", "10%"], ["no tier", "ssd"]),
    "block": (["--block", "8KiB"], ["block", "up to the page", "4 KiB"]),
    "row bytes text": (["--row-bytes", "node=big"], ["big"]),
    "plot": (["--plot", "curves.doc"], ["curves.doc", ".png"]),
    "plot directory": (["--plot", "nowhere/curves.png"], ["nowhere"]),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_refusals(tiering_cli, scored, tmp_path, case):
    (graph, scores), (options, words) = scored, REFUSALS[case]
    before = set(tmp_path.rglob("*"))
    tiering_cli("evaluate", graph, *scores, "--fanouts", "2", *BATCHES, *options).refused(*words)
    assert set(tmp_path.rglob("*")) == before
    assert not Path("curves.doc").exists()
