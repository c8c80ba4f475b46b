"""Format igb: the trees of IGB, IGBH and MAG240M, with and without numpy headers."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refused

from tiering.datasets.open import detect_format, open_dataset
from tiering.datasets.readers import igb as igb_module
from tiering.datasets.specs import known_specs
from tiering.errors import MissingError


@pytest.mark.parametrize("level", [0, 1, 2])
def test_any_level(igb_dir: Path, level: int) -> None:
    path = [igb_dir, *igb_dir.parents][level]
    assert detect_format(path) == "igb"
    with open_dataset(path) as data:
        assert data.name == "tiny"
        others = [("paper", "topic", "fos"), ("paper", "written_by", "author")]
        assert data.relations == [("paper", "cites", "paper"), *others]
        assert {k: v.num_nodes for k, v in data.nodes.items()} == {"author": 3, "fos": 6, "paper": 4}
        paper, author, fos = (data.nodes[t] for t in ("paper", "author", "fos"))
        assert (paper.features.dtype, paper.features.dim) == ("float16", 8)
        assert (author.features.dtype, author.features.dim) == ("float32", 2)
        assert fos.features is None
        assert paper.labels.tolist() == [0, 1, -1, 1]
        assert paper.splits["train"].tolist() == [0, 3]
        written = data.edges[data.relations.index(("paper", "written_by", "author"))]
        assert (written.src.tolist(), written.dst.tolist()) == ([0, 3, 1], [2, 0, 1])
        assert data.notes["inferred"] == {"fos num_nodes": {"value": 6, "from": "largest id + 1"}}
        assert data.notes["ignored_files"] == [str(igb_dir / "paper" / "node_label_2K.npy")]


def test_two_by_two_is_pairs(igb_dir: Path) -> None:
    np.save(igb_dir / "paper__cites__paper/edge_index.npy", np.array([[0, 1], [2, 3]]))
    data = open_dataset(igb_dir)
    assert data.edges[0].src.tolist() == [0, 2]
    assert next(iter(data.notes["inferred"].values())) == "(E, 2)"


def test_label_choice(igb_dir: Path) -> None:
    labels = open_dataset(igb_dir, label="2k").nodes["paper"].labels
    assert labels.tolist() == [7, 8, 9, 10]
    (igb_dir / "paper/node_label_2K.npy").unlink()
    refused(r"expected node_label_2K.npy .*found node_label_19.npy; give", igb_dir, label="2K", error=MissingError)
    refused("--label: expected one of 19, 2K, found .20.", igb_dir, label="20")


def test_counts_from_everywhere(igb_dir: Path) -> None:
    assert open_dataset(igb_dir, num_nodes="fos=9").nodes["fos"].num_nodes == 9
    (igb_dir / "meta.json").write_text(json.dumps({"num_nodes": {"fos": 8}}))
    assert open_dataset(igb_dir).nodes["fos"].num_nodes == 8
    (igb_dir / "fos").mkdir()
    (igb_dir / "fos" / "num_nodes.txt").write_text("7")
    assert open_dataset(igb_dir).nodes["fos"].num_nodes == 7


def test_chosen_relations(igb_dir: Path) -> None:
    for name in ("paper__cites__paper", "paper:cites:paper"):
        data = open_dataset(igb_dir, relations=[name])
        assert list(data.nodes) == ["paper"]
    refused(
        "no relation cites; the relations are paper__cites__paper, ", igb_dir, relations="cites", error=MissingError
    )


def test_several_sizes(igb_dir: Path) -> None:
    other = igb_dir.parents[1] / "small" / "processed" / "paper__cites__paper"
    other.mkdir(parents=True)
    np.save(other / "edge_index.npy", np.zeros((1, 2), np.int64))
    refused("there are 2 datasets", igb_dir.parents[1])


def test_splits_are_made_for_the_labeled_type(igb_dir: Path) -> None:
    data = open_dataset(igb_dir, split=(0.67, 0.33, 0))
    assert {k: bool(v.splits) for k, v in data.nodes.items()} == {"author": False, "fos": False, "paper": True}
    assert 2 not in np.concatenate(list(data.nodes["paper"].splits.values()))
    for name in ("19", "2K"):
        (igb_dir / f"paper/node_label_{name}.npy").unlink()
    refused(r"no node type .* has labels to split", igb_dir, split=(0.5, 0.5, 0))


@pytest.fixture
def headerless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """IGB "full" in miniature: 10 papers x 1024 and labels without header; 7 labeled, 6 of them truly in 2K."""
    prefixes = {"paper/node_label_19.npy": (7,), "paper/node_label_2K.npy": (6, 7)}
    full = known_specs()["igbh-full"]
    files = tuple(replace(file, prefixes=prefixes.get(file.path, ())) for file in full.files)
    small = replace(full, nodes={"paper": 10, "author": 4}, files=files)
    monkeypatch.setattr(igb_module, "known_specs", lambda: {**known_specs(), "igbh-full": small})
    tree = tmp_path / "full" / "processed"
    for name in ("paper", "author", "paper__cites__paper", "paper__written_by__author"):
        (tree / name).mkdir(parents=True)
    features = np.arange(10 * 1024, dtype=np.float32).reshape(10, 1024)
    features.tofile(tree / "paper/node_feat.npy")
    features[:4].tofile(tree / "author/node_feat.npy")
    np.array([0, 1, 2, 3, 4, 5, 6, 0, 0, 0], np.float32).tofile(tree / "paper/node_label_19.npy")
    np.arange(7, dtype=np.float32).tofile(tree / "paper/node_label_2K.npy")
    np.save(tree / "paper__cites__paper/edge_index.npy", np.array([[0, 1], [1, 2], [9, 3]], np.int64))
    np.save(tree / "paper__written_by__author/edge_index.npy", np.array([[0, 1], [1, 2], [9, 3]], np.int64))
    return tree


def test_headerless_files_of_known_size(headerless: Path) -> None:
    data = open_dataset(headerless)
    paper, author = data.nodes["paper"], data.nodes["author"]
    assert (paper.features.offset, paper.features.rows, paper.features.dim) == (0, 10, 1024)
    assert (author.features.rows, author.features.dim) == (4, 1024)
    assert paper.features.open()[3, 5] == 3 * 1024 + 5
    assert data.notes["inferred"]["paper feature shape"] == [10, 1024, "float32"]
    assert paper.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, -1, -1, -1]
    assert data.notes["num_labelled"] == 7


def test_padding_of_the_2k_labels_and_whole_numbers_without_header(headerless: Path) -> None:
    def labels(**options: Any) -> list[int]:
        return open_dataset(headerless, **options).nodes["paper"].labels.tolist()

    assert labels(label="2K") == [0, 1, 2, 3, 4, 5, -1, -1, -1, -1]
    assert labels(label="2K", num_labelled=3) == [0, 1, 2, -1, -1, -1, -1, -1, -1, -1]
    assert labels(label="2K", num_labeled=3) == labels(label="2K", num_labelled=3)
    np.arange(10).tofile(headerless / "paper/node_label_19.npy")
    assert labels(num_labelled=10) == list(range(10))


def test_labels_confirm_the_shape_of_unknown_sizes(headerless: Path) -> None:
    headerless.parent.rename(headerless.parents[1] / "mine")
    tree = headerless.parents[1] / "mine" / "processed"
    paper = open_dataset(tree, relations="paper__cites__paper").nodes["paper"]
    assert paper.features.rows == 10
    refused(r"author/node_feat.npy: .*found no numpy header.*--feature-dim", tree)
    author = open_dataset(tree, feature_dim="author=1024").nodes["author"]
    assert author.num_nodes == 4


def cut(name: str, size: int) -> Callable[[Path], None]:
    return lambda tree: (tree / name).write_bytes((tree / name).read_bytes()[:size])


HEADERLESS_BAD = [
    (cut("paper/node_feat.npy", 9 * 4096), {}, "found no numpy header"),
    (cut("paper/node_feat.npy", 9 * 4096), {"num_nodes": "paper=10"}, "36864 bytes are no whole number"),
    (cut("paper/node_feat.npy", 0), {}, r"empty file \(0 bytes\)"),
    (cut("paper/node_label_19.npy", 20), {}, r"its 20 bytes are not 10 labels of float32 \(40 bytes\)"),
    (lambda tree: None, {"feature_dim": "fos=3"}, "feature-dim: no node type fos; there are: author, paper"),
    (
        lambda tree: (tree / "meta.json").write_text('{"num_nodes": {"paper": 11}}'),
        {},
        r"meta\.json: expected 10 nodes of type paper .*found 11",
    ),
]


@pytest.mark.parametrize(("damage", "options", "message"), HEADERLESS_BAD)
def test_bad_input(headerless: Path, damage: Callable[[Path], object], options: dict[str, Any], message: str) -> None:
    damage(headerless)
    refused(message, headerless, **options)


def test_no_tree(tmp_path: Path) -> None:
    refused("expected an IGB tree, found no folder SRC__NAME__DST", tmp_path, "igb", error=MissingError)
