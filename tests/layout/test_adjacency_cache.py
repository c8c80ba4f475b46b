"""Layouts that share the GPU's memory with adjacency lists: through the command line, with one type and with many."""

from __future__ import annotations

import json
import re
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
from plain_reader import read_rows
from toy_datasets import toy_dataset

import tiering
from tiering import pipeline
from tiering.errors import BudgetError
from tiering.formats.graph import Graph
from tiering.formats.layout import Layout
from tiering.formats.scores import Scores
from tiering.graph.build import build_graph
from tiering.layout.adjacency_cache import gpu_budget
from tiering.layout.inputs import adjacency_lists
from tiering.layout.tiers import RankedTable
from tiering.memory import own_memory, release_unused
from tiering.pipeline import layout as write_layout
from tiering.text.units import Size

SIZES = "--nodes 3000 --edges 30000 --dim 24 --classes 4 --seed 1"
FANOUTS = ("--fanouts", "5,5", "--batch-size", 64)


def generate_chain(folder, *options):
    """Return the directories of a chain up to the reordered graph."""
    from tiering.cli.main import main

    found = SimpleNamespace(**{name: folder / name for name in ("data", "graph", "scores", "reordered")})
    for command in (
        ("generate", found.data, *SIZES.split(), *options),
        ("import", found.data, "--out", found.graph),
        ("score", found.graph, *FANOUTS, "--out", found.scores),
        ("reorder", found.graph, "--scores", found.scores, "--out", found.reordered),
    ):
        assert main([str(part) for part in command]) == 0
    return found


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    return generate_chain(tmp_path_factory.mktemp("one"))


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    return generate_chain(tmp_path_factory.mktemp("many"), "--hetero", "--featureless", "fos")


def check_lists(layout, scores):
    """What the manifest says of lists is so in the graph and in the scores."""
    split, body = layout.split, layout.manifest.body
    reads = served = 0.0
    for relation in layout.graph.relations:
        indptr, indices = layout.graph.csc(relation)
        prefix, keys = layout.adjacency_prefix(relation), layout.graph.new_to_old(relation[2])
        columns = prefix.columns
        by_rank = scores.adjacency(relation)[keys]
        reads, served = reads + by_rank.sum(), served + by_rank[:columns].sum()
        assert prefix.edges == indptr[columns]
        held = [indptr[: columns + 1], indices[: prefix.edges], keys[:columns]]
        sums = 8 * prefix.edges if prefix.weights else 0
        assert prefix.bytes == (sum(array.nbytes for array in held) + sums if columns else 0)
    assert split["predicted"]["adjacency"]["reads"] == pytest.approx(reads)
    assert split["predicted"]["adjacency"]["served"] == pytest.approx(served)
    assert set(body["adjacency"]) == {":".join(r) for r in layout.graph.relations if layout.adjacency_prefix(r).columns}
    assert split["adjacency_bytes"] + split["feature_bytes"] <= split["budget_bytes"]


@pytest.mark.parametrize("mode", ["auto", "30%"])
@pytest.mark.parametrize("kind", ["one", "many"])
def test_through_the_command_line(tiering_cli, tmp_path, request, kind, mode):
    chain = request.getfixturevalue(kind)
    out, disks = tmp_path / "layout", ("--ssd", tmp_path / "a", "--ssd", tmp_path / "b")
    asked = ("layout", chain.reordered, "--gpu", "80KiB", "--peer", "2x3%", "--cpu", "20%", *disks, "--out", out)
    asked = (*asked, "--adjacency-cache", mode, "--scores", chain.scores)
    dry = tiering_cli(*asked, "--dry-run").ok().out
    said = tiering_cli(*asked).ok().out
    assert f"GPU memory: 80 KiB, split: {mode}" in said
    assert "Adjacency lists on the GPU" in said and "time saved per epoch" in said
    tiering_cli("check", out, "--full").ok()
    layout, scores = Layout.open(out), Scores.open(chain.scores)
    check_lists(layout, scores)
    split, budget = layout.split, 80 << 10
    assert split["mode"] == mode and split["budget_bytes"] == budget
    assert f"note: adjacency cache {mode}: of 80 KiB, adjacency lists take" in dry
    shares = [split["predicted"][side] for side in ("adjacency", "features")]
    for share in shares:
        assert f"serve {100 * share['served'] / share['reads']:.1f} %" in dry
    if mode == "30%":
        assert 0.3 * budget - 1000 < split["adjacency_bytes"] <= 0.3 * budget
    for node_type in layout.feature_types:
        source = np.load(chain.data / f"processed/{node_type}/node_feat.npy")[layout.graph.new_to_old(node_type)]
        np.testing.assert_array_equal(read_rows(out, node_type), source.view(np.uint8).reshape(len(source), -1))
    recorded = layout.manifest.provenance
    assert recorded["options"]["split"] == mode and recorded["inputs"]["scores"] == scores.digest
    assert recorded["options"]["gpu_times"]["source"] == "assumed"


def test_memory_below_the_least(one, tmp_path, settled_memory):
    graph, scores = Graph.open(one.reordered), Scores.open(one.scores)
    release_unused()
    asked = {"gpu": "9%", "adjacency_cache": "auto", "scores": scores, "memory": own_memory() + 1000}
    with pytest.raises(BudgetError, match=r"memory: adjacency cache: .* 3,000 adjacency lists need .* give memory=."):
        write_layout(graph, tmp_path / "out", **asked)


@pytest.mark.parametrize("seed", range(0, 12, 2))
def test_toy_graphs(tmp_path, seed):
    """Types without features, relations without edges, edge weights, samplers of every kind."""
    toy = toy_dataset(tmp_path / "data", seed, max_nodes=60, min_nodes=20, max_edges=400)
    graph = build_graph(toy.dataset, tmp_path / "graph")
    weighted = all("weight" in edges.data for edges in toy.dataset.edges)
    sampler = "weighted" if weighted else ("uniform", "replacement", "ladies", "full")[seed % 4]
    fanouts = [-1, -1] if sampler == "full" else [3, 2]
    scores = pipeline.score_graph(
        graph, tmp_path / "scores", "presample", fanouts=fanouts, batch_size=8, sampler=sampler
    )
    reordered = pipeline.reorder_graph(graph, scores, tmp_path / "reordered")
    rows = [RankedTable(t, table.shape[0], table[0].nbytes, np.zeros(len(table))) for t, table in toy.tables.items()]
    everything = gpu_budget(Size("auto"), rows, adjacency_lists(reordered, scores))
    for mode in ("auto", "50%"):
        layout = write_layout(
            reordered, tmp_path / mode, gpu=max(1, everything // 3), cpu="auto", adjacency_cache=mode, scores=scores
        )
        assert tiering.check(layout.path, "full") == []
        check_lists(layout, scores)
        for node_type, table in toy.tables.items():
            expected = table.view(np.uint8).reshape(table.shape[0], -1)[layout.graph.new_to_old(node_type)]
            np.testing.assert_array_equal(read_rows(layout.path, node_type), expected)
    whole = write_layout(reordered, tmp_path / "whole", gpu=everything, adjacency_cache="auto", scores=scores)
    for side in whole.split["predicted"].values():
        assert side["served"] == pytest.approx(side["reads"]) and side["saved"] == pytest.approx(side["seconds"])


def test_bad_input(tiering_cli, one, many, tmp_path):
    out, good = tmp_path / "out", ("--gpu", "80KiB", "--scores", one.scores)
    auto = ("--gpu", "9%", "--adjacency-cache", "auto", "--scores")
    tiering_cli("score", one.graph, "--method", "wrpr", "--out", tmp_path / "wrpr").ok()
    tiering_cli("reorder", one.graph, "--scores", tmp_path / "wrpr", "--out", tmp_path / "by_wrpr").ok()
    tiering_cli("score", one.graph, *FANOUTS, "--seed", 5, "--out", tmp_path / "other").ok()
    (tmp_path / "bad.json").write_text("{}")
    for arguments, words in (
        ((*good,), ("scores: have an effect only with --adjacency-cache", "--adjacency-cache auto")),
        (("--access-costs", tmp_path / "bad.json"), ("--access-costs: have an effect only with --adjacency-cache",)),
        (("--gpu", "9%", "--adjacency-cache", "auto"), ("--adjacency-cache: auto needs the scores", "--scores S")),
        ((*good[2:], "--adjacency-cache", "auto"), ("--adjacency-cache: needs GPU memory to divide", "--gpu SIZE")),
        ((*auto, many.scores), ("its graph is not the one that", "tiering reorder")),
        (
            (*auto, tmp_path / "other"),
            ("reordered: ordered by other scores than", "paper of rank 0 has", "in the order and", "tiering reorder"),
        ),
        ((*auto, one.graph), ("expected a scores artifact, found a graph",)),
    ):
        asked = ("layout", one.reordered, *arguments, "--out", out)
        assert tiering_cli(*asked).refused(*words) == tiering_cli(*asked, "--dry-run").refused(*words)
    silent = (*auto, tmp_path / "wrpr")
    words = ("wrpr does not predict reads of adjacency lists", "tiering score G --method hybrid --fanouts 10,10")
    tiering_cli("layout", tmp_path / "by_wrpr", *silent, "--out", out).refused(*words)
    tiering_cli("layout", one.graph, *good, "--adjacency-cache", "auto", "--out", out).refused(
        "expected a reordered graph"
    )
    assert not out.exists()


def test_a_graph_without_features(tiering_cli, tmp_path, caplog):
    """All of the memory is for lists; a share of no features is nothing."""
    toy = toy_dataset(tmp_path / "data", 2, featureless=1, max_nodes=60, min_nodes=40, max_edges=400)
    graph = build_graph(toy.dataset, tmp_path / "graph")
    scores = pipeline.score_graph(graph, tmp_path / "scores", fanouts=[3, 2])
    reordered = pipeline.reorder_graph(graph, scores, tmp_path / "reordered")
    out = ("--out", tmp_path / "layout", "--scores", scores.path, "--adjacency-cache", "auto")
    given = ("layout", reordered.path, *out)
    tiering_cli(*given, "--gpu", "10%").refused("10% of 0 B feature data is no memory to divide")
    made = tiering_cli(*given, "--gpu", "400", "--json").ok().json
    assert 200 < made["split"]["adjacency_bytes"] <= 400 and made["split"]["feature_bytes"] == 0
    assert "tier sizes are ignored" not in caplog.text


CONFIG = """
[dataset]
path = "tiny"
[score]
fanouts = [3, 2]
batch_size = 4
[layout]
gpu = "400"
adjacency_cache = "auto"
[output]
dir = "made"
"""


def test_run_splits_by_its_own_scores(tiny_dataset, tiering_cli):
    config = tiny_dataset.parent / "chain.toml"

    def run(text=CONFIG):
        config.write_text(text)
        report = tiering_cli("run", config, "--json").ok().json
        return [stage["stage"] for stage in report["stages"] if stage["done"]]

    config.write_text(CONFIG)
    assert "depends on scores; counted as none" in tiering_cli("run", config, "--dry-run").ok().out
    assert run() == ["import", "score", "reorder", "layout"]
    layout = Layout.open(tiny_dataset.parent / "made" / "layout")
    check_lists(layout, Scores.open(tiny_dataset.parent / "made" / "scores"))
    assert run() == []
    assert tiering_cli("run", config, "--dry-run").ok().out.count("up to date") == 4
    assert run(CONFIG.replace('"auto"', '"40%"')) == ["layout"]
    shutil.rmtree(tiny_dataset.parent / "made" / "layout")
    assert "adjacency cache 40%: of 400 B" in tiering_cli("run", config, "--dry-run").ok().out
    assert run(CONFIG.replace('adjacency_cache = "auto"\n', "")) == ["layout"]
    times = {"device": "x", "feature_seconds": {"base": 1e-9, "per_byte": 0}, "list_seconds": 0, "neighbour_seconds": 0}
    timed = CONFIG.replace('"auto"', '"auto"\naccess_costs = "times.json"')
    (config.parent / "times.json").write_text(json.dumps(times))
    assert run(timed) == ["layout"]
    assert run(timed) == []
    (config.parent / "times.json").write_text(json.dumps({**times, "list_seconds": 1e-9}))
    assert run(timed) == ["layout"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"auto"', '"auto"\naccess_costs = "none.json"', r"\[layout\] access costs: .*none.json: no such file"),
        ("fanouts = [3, 2]\n", "", r"adjacency_cache: needs scores that know the sampler; add \[score\] fanouts"),
        ("fanouts = [3, 2]\n", 'method = "degree"\n', r"method to presample, vip, hybrid, or remove it"),
    ],
)
def test_a_chain_that_cannot_split_is_refused_before_it_begins(tiny_dataset, tiering_cli, old, new, message):
    config = tiny_dataset.parent / "chain.toml"
    config.write_text(CONFIG.replace(old, new))
    assert re.search(message, tiering_cli("run", config).refused("chain.toml: [layout]"))
    assert not (tiny_dataset.parent / "made").exists()
