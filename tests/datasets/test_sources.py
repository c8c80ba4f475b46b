"""Specifications of published datasets: sizes on paper, trees held against them, plans without data."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from tiering.datasets.open import READERS, open_dataset
from tiering.datasets.specs import find_spec, known_specs, make_sized_dataset
from tiering.errors import MissingError, TieringError

SPEC = """
title = "Papers and authors in miniature"
home = "here"
license = "none"
citation = "none"
format = "igb"
roots = ["{size}/processed", ""]
classes = { paper = 3 }
labels = "NaN: none"
splits = "none"

[options]
split = "0.5,0.25,0.25"

[[files]]
path = "{type}/node_feat.npy"
holds = "features"
types = ["paper", "author"]
dtype = ["float32"]
shape = ["{type}", 4]
headerless = ["raw"]

[[files]]
path = "paper/node_label_19.npy"
holds = "labels"
of = "paper"
dtype = ["float32"]
shape = ["paper"]

[[files]]
path = "paper__written_by__author/edge_index.npy"
holds = "edges"
of = "paper__written_by__author"
dtype = ["int64"]
shape = ["paper__written_by__author", 2]

[[files]]
path = "paper/extra.npy"
holds = "other"
optional = true

[variants.mini]
name = "mini"
nodes = { paper = 200, author = 60 }
edges = { paper__written_by__author = 500 }

[[defects]]
id = "somewhere#1"
text = "The last 50 rows are zeros in old downloads."
cure = "Fetch the patch."
"""


@pytest.fixture
def spec(tmp_path: Path) -> str:
    path = tmp_path / "mini.toml"
    path.write_text(SPEC)
    return str(path)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What the specification says, in the place that it names."""
    root, rng = tmp_path / "data" / "mini" / "processed", np.random.default_rng(0)
    for folder in ("paper", "author", "paper__written_by__author"):
        (root / folder).mkdir(parents=True)
    np.save(root / "paper/node_feat.npy", rng.random((200, 4), np.float32) + 1)
    np.save(root / "author/node_feat.npy", rng.random((60, 4), np.float32) + 1)
    labels = rng.integers(0, 3, 200).astype(np.float32)
    labels[::5] = np.nan
    np.save(root / "paper/node_label_19.npy", labels)
    edges = np.stack((rng.integers(0, 200, 500), rng.integers(0, 60, 500)), axis=1)
    np.save(root / "paper__written_by__author/edge_index.npy", edges)
    return root


def test_the_other_spelling_of_a_key_is_accepted(tmp_path):
    for name, text in (("a", SPEC), ("b", SPEC.replace("license", "licence"))):
        (tmp_path / f"{name}.toml").write_text(text)
    assert find_spec(str(tmp_path / "a.toml")) == find_spec(str(tmp_path / "b.toml"))


def test_the_sizes_of_the_specifications_are_those_published():
    files = {file.path: file.bytes for file in find_spec("igbh-full").files}
    assert files["paper/node_feat.npy"] == 1_103_241_928_704
    assert files["author/node_feat.npy"] == 1_135_496_736_768
    assert files["fos/node_feat.npy"] == 2_920_284_160
    assert files["paper/node_label_19.npy"] == 1_077_384_696
    assert files["paper__cites__paper/edge_index.npy"] == 2 * 8 * 3_727_095_830
    with make_sized_dataset(find_spec("igbh-full")) as igbh:
        assert sum(node.num_nodes for node in igbh.nodes.values()) == 547_306_935
    for shares in ("0.25,0.5,0", (0.25, 0.5, 0.0)):  # of a dataset without labels, as the user asks
        with make_sized_dataset(find_spec("uk-2006-05"), options={"split": shares}) as crawl:
            sizes = {name: ids.size for name, ids in crawl.nodes["node"].splits.items()}
            assert sizes == {"train": 19_435_262, "val": 38_870_523, "test": 0}
    with make_sized_dataset(find_spec("uk-2006-05")) as crawl:
        assert not crawl.nodes["node"].splits
    mag = find_spec("mag240m")
    asked = {"reverse_edges": True, "mean_features": "author=writes,institution=affiliated_with"}
    with make_sized_dataset(mag, options=asked) as planned:
        edges = {edges.relation[1]: edges.num_edges for edges in planned.edges}
        assert edges["cites"] == 2 * mag.count("paper___cites___paper")
        assert edges["rev_writes"] == edges["writes"] == mag.count("author___writes___paper")
        shapes = [(data.features.rows, data.features.dim) for data in planned.nodes.values()]
        assert shapes == [(data.num_nodes, 768) for data in planned.nodes.values()]
    assert sum(mag.nodes.values()) == 244_160_499
    assert {file.path: file.bytes for file in mag.files}["paper/node_feat.npy"] == 121_751_666 * 768 * 2
    papers = find_spec("ogbn-papers100m")
    assert papers.bytes == pytest.approx(83.6e9, rel=0.01)


def test_every_specification_names_a_reader_and_files_of_its_own_relations():
    assert len(known_specs()) >= 20
    for source in known_specs().values():
        assert source.format in READERS
        assert set(source.options) <= READERS[source.format].takes | {"split", "self_loops", "reverse_edges"}
        for file in source.files:
            if file.of is not None and source.nodes:
                assert file.optional or source.count(file.of) is not None, (source.name, file.path)


def test_a_tree_as_specified_is_imported_with_the_options_of_its_specification(tree, spec):
    with open_dataset(tree.parent.parent, spec=spec) as data:
        assert data.notes["spec"] == "mini"
        assert {name: ids.size for name, ids in data.nodes["paper"].splits.items()} == {
            "train": 80, "val": 40, "test": 40,
        }  # fmt: skip
    with open_dataset(tree, spec=spec, split="1,0,0") as data:
        assert data.nodes["paper"].splits["train"].size == 160


def exchange(root: Path) -> None:
    (root / "paper/node_feat.npy").rename(root / "swap")
    (root / "author/node_feat.npy").rename(root / "paper/node_feat.npy")
    (root / "swap").rename(root / "author/node_feat.npy")


SHORT, DOUBLE = np.ones((199, 4), np.float32), np.ones((200, 4))
SPOILT = [
    (
        lambda root: np.load(root / "author/node_feat.npy").tofile(root / "author/node_feat.npy"),
        r"author/node_feat.npy: .*with a numpy header, found 960 bytes without one",
    ),
    (
        lambda root: np.save(root / "paper/node_feat.npy", SHORT),
        r"paper/node_feat.npy: .*float32 \(200, 4\), 3200 bytes, found float32 \(199, 4\)",
    ),
    (lambda root: np.save(root / "paper/node_feat.npy", DOUBLE), r"features, float32 .*found float64 \(200, 4\)"),
    (exchange, r"it has the size of author/node_feat.npy: give the files their names back"),
    (
        lambda root: (root / "paper/node_label_19.npy").unlink(),
        r"node_label_19.npy: expected labels, float32 \(200,\), 800 bytes of mini",
    ),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILT)
def test_a_file_that_is_not_as_specified_is_named_before_work_begins(tree, spec, spoil, message):
    spoil(tree)
    refused(message, tree, spec=spec, error=TieringError)


def test_a_place_without_the_dataset_and_unknown_names_are_refused(tree, spec, tmp_path):
    with pytest.raises(MissingError, match=r"no files of mini found; looked in 'mini/processed', ''"):
        open_dataset(tree.parent.parent / "mini", spec=spec)
    refused("no such dataset; did you mean igbh-full", tree, spec="igbh_full", error=MissingError)
    wrong = tmp_path / "wrong.toml"
    wrong.write_text(SPEC.replace('holds = "labels"', 'holds = "classes"'))
    refused(r"wrong.toml: files.1.holds: 'classes' is not one of", tree, spec=str(wrong))
    wrong.write_text("title = ")
    refused("expected TOML", tree, spec=str(wrong))


def test_plans_are_made_from_a_specification_alone(tmp_path, tiering_cli):
    absent, out = tmp_path / "absent", tmp_path / "graph"
    arguments = ["import", str(absent), "--spec", "igbh-tiny", "--out", str(out), "--memory", "8GiB", "--dry-run"]
    stage = tiering_cli(*arguments, "--json").ok().json["stages"][0]
    steps = {step["name"]: step for step in stage["steps"]}
    edges = 2 * 8 * (447_416 + 471_443 + 718_445 + 325_410)
    assert steps["files"]["disk_read"] == edges + 8 * 100_000
    assert steps["paper:cites:paper"]["disk_written"] == 8 * 100_001 + 4 * 447_416
    assert not out.exists()
    tiering_cli("import", absent, "--spec", "igbh-tiny", "--out", out).refused("no such file or directory")


def test_the_list_and_the_page_of_a_dataset(tiering_cli):
    listed = tiering_cli("datasets").ok()
    assert all(name in listed.out for name in known_specs())
    page = tiering_cli("datasets", "igb-full").ok()
    assert "IGB-Datasets#57" in page.out
    assert "paper/node_feat.npy" in page.out
    document = tiering_cli("datasets", "mag240m", "--json").ok().json
    assert document["nodes"]["author"] == 122_383_112
    assert document["least_memory"] >= 8 * 121_751_667
    tiering_cli("datasets", "nothing").refused("no such dataset")


def test_every_list_of_formats_names_all(tiering_cli):
    shown = " ".join(tiering_cli("import", "--help").ok().out.replace("│", " ").split())
    assert [name for name in READERS if not re.search(rf"\b{name}\b", shown)] == []
