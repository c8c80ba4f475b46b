"""Scores that the user has computed, and scores by chance, through the commands that take scores."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import tiering
from tiering.artifacts.checksum import checksum_file
from tiering.errors import InputError

NODES = 40
"""Of `tiny_dataset`."""


@pytest.fixture
def graph(chain):
    return chain / "graph"


@pytest.fixture
def typed(tiering_cli, tmp_path):
    """Four types; fos and institute without features."""
    size = "--nodes 300 --edges 2000 --dim 4 --classes 3 --hetero --featureless fos --featureless institute"
    tiering_cli("generate", tmp_path / "data", *size.split()).ok()
    tiering_cli("import", tmp_path / "data", "--out", tmp_path / "typed").ok()
    return tmp_path / "typed"


def hotness(dtype="float32", nodes=NODES, seed=3):
    """Whole numbers, so that they are the same in any dtype, with ties."""
    return np.random.default_rng(seed).integers(0, 20, nodes).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float64", "uint8"])
def test_own_scores_rank_the_nodes_and_fill_the_tiers(tiering_cli, graph, tmp_path, dtype):
    values = hotness(dtype)
    np.save(tmp_path / "hotness.npy", values)
    out = ("--out", tmp_path / "scores")
    tiering_cli("score", graph, "--from", tmp_path / "hotness.npy", *out).ok()
    tiering_cli("check", tmp_path / "scores", "--full").ok()
    scores = tiering.open(tmp_path / "scores")
    np.testing.assert_array_equal(scores.values(), values.astype(np.float64))
    provenance = scores.manifest.provenance
    assert provenance["options"] == {"method": "given"}
    assert provenance["inputs"]["scores of node"] == checksum_file(tmp_path / "hotness.npy")

    judged = tiering_cli("evaluate", graph, "--scores", tmp_path / "scores", "--fanouts", "3,2", "--json").ok().json
    assert list(judged["hit_rates"]) == ["given", "oracle"]

    tiering_cli("reorder", graph, "--scores", tmp_path / "scores", "--out", tmp_path / "reordered").ok()
    expected = sorted(range(NODES), key=lambda node: (-int(values[node]), node))
    assert tiering.open(tmp_path / "reordered").new_to_old().tolist() == expected
    layout = ("layout", tmp_path / "reordered", "--gpu", "25%", "--out", tmp_path / "layout")
    tiering_cli(*layout).ok()
    with tiering.open(tmp_path / "layout") as opened:
        assert opened.features().placement()["gpu"]["rows"] == NODES // 4

    refused = tiering_cli(*layout, "--force", "--adjacency-cache", "auto", "--scores", tmp_path / "scores")
    refused.refused("given does not predict reads of adjacency lists", "hybrid --fanouts")


def test_python_takes_arrays_lists_paths_and_mappings(graph, tmp_path):
    values = hotness("int64")
    file = tmp_path / "hotness=1.npy"  # a path may have a = in it
    np.save(file, values)
    forms = [values, values.reshape(-1, 1), values.tolist(), file, str(file), values[::-1][::-1]]
    forms += [{"node": values}, {"node": file}, f"node={file}"]
    for form in forms:
        scores = tiering.score_graph(graph, out=tmp_path / "scores", scores=form, force=True)
        np.testing.assert_array_equal(scores.values(), values)
    first = tiering.score_graph(graph, out=tmp_path / "a", scores=values).manifest.provenance["inputs"]
    other = tiering.score_graph(graph, out=tmp_path / "b", scores=values + 1).manifest.provenance["inputs"]
    assert first["graph"] == other["graph"]
    assert first["scores of node"] != other["scores of node"]


def test_types_with_features_must_be_named_others_need_not(tiering_cli, typed, tmp_path):
    graph = tiering.open(typed)
    assert [t for t in graph.node_types if graph.feature_table(t) is not None] == ["author", "paper"]
    options = []
    for node_type in ("author", "paper", "fos"):
        np.save(tmp_path / f"{node_type}.npy", hotness(nodes=graph.num_nodes(node_type), seed=len(node_type)))
        options.append(("--from", f"{node_type}={tmp_path / node_type}.npy"))
    out = ("--out", tmp_path / "scores")
    tiering_cli("score", typed, *options[0], *out).refused("are missing: paper", "give --from paper=FILE")
    tiering_cli("score", typed, "--from", tmp_path / "paper.npy", *out).refused(
        "the node type is not clear", "author, paper"
    )
    tiering_cli("score", typed, *options[0], *options[0], *out).refused("'author' is given twice")
    tiering_cli("score", typed, "--from", f"venue={tmp_path / 'paper.npy'}", *out).refused("TYPE=FILE", "found 'venue=")
    told = tiering_cli("score", typed, *options[0], *options[1], *out).ok()
    assert "note: scores of fos, institute are all 0: no features, and none were given" in told.err
    assert not tiering.open(tmp_path / "scores").values("fos").any()
    tiering_cli("score", typed, *options[0], *options[1], *options[2], *out, "--force").ok()
    scores = tiering.open(tmp_path / "scores")
    for node_type in ("author", "paper", "fos"):
        np.testing.assert_array_equal(scores.values(node_type), np.load(tmp_path / f"{node_type}.npy"))
    tiering_cli("reorder", typed, "--scores", tmp_path / "scores", "--out", tmp_path / "reordered").ok()
    tiering_cli("layout", tmp_path / "reordered", "--gpu", "10%", "--out", tmp_path / "layout").ok()
    with pytest.raises(InputError, match=r"^scores: .* has no node type venue; types: author, fos"):
        tiering.score_graph(typed, out=tmp_path / "no", scores={"venue": [1.0]})


@pytest.mark.parametrize(("values", "words"), [
    (np.where(np.arange(NODES) == 7, np.nan, 1.0), ["finite scores of 0 or more", "found nan at node 7"]),
    (np.where(np.arange(NODES) == 7, np.inf, 1.0), ["found inf at node 7"]),
    (np.where(np.arange(NODES) == 9, -1, 1), ["found -1.0 at node 9"]),
    (np.ones(NODES + 1), [f"expected {NODES} scores", f"found {NODES + 1}"]),
    (np.ones((NODES, 2)), ["one score per node, one column", "choose one"]),
    (np.ones(NODES, complex), ["plain numeric array"]), (np.ones(NODES, bool), ["expected numbers, found bool"]),
    (np.array(["1"] * NODES), ["plain numeric array"]), (np.array([None] * NODES), ["pickled"]),
])  # fmt: skip
def test_scores_that_do_not_fit(tiering_cli, graph, tmp_path, values, words):
    np.save(tmp_path / "hotness.npy", values)
    refused = tiering_cli("score", graph, "--from", tmp_path / "hotness.npy", "--out", tmp_path / "scores")
    refused.refused("hotness.npy", *words)
    assert not (tmp_path / "scores").exists()


def test_what_stands_in_the_way_of_own_scores(tiering_cli, graph, tmp_path):
    np.save(tmp_path / "hotness.npy", hotness())
    given = ("score", graph, "--from", tmp_path / "hotness.npy", "--out", tmp_path / "scores")
    tiering_cli(*given, "--method", "degree").refused(
        "'degree' has no effect with your own scores", "omit one of the two"
    )
    tiering_cli("score", graph, "--from", tmp_path / "none.npy", "--out", tmp_path / "s").refused("found nothing")
    tiering_cli("score", graph, "--method", "given", "--out", tmp_path / "s").refused("found 'given'")
    note = tiering_cli(*given, "--train", "10%", "--sweeps", 3).ok().err
    assert "note: sweeps has no effect on given, only on wrpr" in note
    assert "note: train has no effect on given" in note


def test_own_scores_of_another_graph(tiering_cli, graph, tiny_dataset, tmp_path):
    np.save(tmp_path / "hotness.npy", hotness())
    tiering_cli("score", graph, "--from", tmp_path / "hotness.npy", "--out", tmp_path / "scores").ok()
    tiering_cli("import", tiny_dataset, "--deduplicate", "--out", tmp_path / "other").ok()
    judge = ("evaluate", tmp_path / "other", "--scores", tmp_path / "scores", "--fanouts", "3,2")
    tiering_cli(*judge).refused("computed on another graph", "--from FILE --out NEW")
    config = tmp_path / "chain.toml"
    config.write_text(
        f'[dataset]\npath = "{tiny_dataset}"\n[score]\nfrom = "hotness.npy"\nfanouts = [3, 2]\n'
        '[layout]\ngpu = "25%"\nadjacency_cache = "auto"\n'
    )
    tiering_cli("run", config).refused("adjacency_cache: needs scores that know the sampler")


def plain_random(node_type, node, seed):
    """SplitMix64 in plain Python."""
    import xxhash

    word = 2**64 - 1
    bits = (xxhash.xxh3_64_intdigest(node_type.encode(), seed) + (node + 1) * 0x9E3779B97F4A7C15) & word
    bits = ((bits ^ bits >> 30) * 0xBF58476D1CE4E5B9) & word
    bits = ((bits ^ bits >> 27) * 0x94D049BB133111EB) & word
    return ((bits ^ bits >> 31) >> 11) / 2**53


def test_random_scores_are_those_of_plain_python(tiering_cli, typed, tmp_path, monkeypatch):
    monkeypatch.setattr("tiering.scores.direct.CHUNK", 7)
    random = ("score", typed, "--method", "random")
    for seed, threads in ((0, 1), (5, 2)):
        tiering_cli(*random, "--seed", seed, "--threads", threads, "--out", tmp_path / "s", "--force").ok()
        scores = tiering.open(tmp_path / "s")
        assert scores.manifest.provenance["seed"] == seed
        for node_type in scores.node_types:
            values = scores.values(node_type)
            assert values.tolist() == [plain_random(node_type, node, seed) for node in range(values.size)]
    default = tiering.score_graph(typed, tmp_path / "default", "random")
    assert default.manifest.provenance["seed"] == 0
    assert default.values("paper")[0] == plain_random("paper", 0, 0)
    judged = tiering_cli("evaluate", typed, "--scores", tmp_path / "s", "--fanouts", "3,2", "--json").ok().json
    assert list(judged["hit_rates"]) == ["random", "oracle"]


def test_a_chain_takes_own_scores_and_notices_that_they_changed(tiering_cli, tiny_dataset, tmp_path):
    np.save(tmp_path / "hotness.npy", hotness())
    config = tmp_path / "chain.toml"
    layout = '[layout]\ngpu = "25%"\n[output]\ndir = "out"\n'
    forms = ['from = "hotness.npy"', 'from = {node = "hotness.npy"}']
    for form, done in zip(forms, (True, False), strict=True):
        config.write_text(f'[dataset]\npath = "{tiny_dataset}"\n[score]\n{form}\n{layout}')
        stages = json.loads(tiering_cli("run", config, "--json").ok().out)["stages"]
        assert [stage["done"] for stage in stages] == [done] * 4
    assert "up to date" in tiering_cli("run", config, "--dry-run").ok().out
    np.save(tmp_path / "hotness.npy", hotness(seed=8))
    stages = json.loads(tiering_cli("run", config, "--json").ok().out)["stages"]
    assert [stage["done"] for stage in stages] == [False, True, True, True]
    np.testing.assert_array_equal(tiering.open(Path(tmp_path / "out/scores")).values(), hotness(seed=8))
    config.write_text(f'[dataset]\npath = "{tiny_dataset}"\n[score]\nfrom = "h.npy"\n{layout}')
    tiering_cli("run", config, "--dry-run", "--force").refused("h.npy", "found nothing")
