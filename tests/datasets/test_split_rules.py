"""Splits by name: as the dataset's files have them, as IGB's loader makes them, as MLPerf's reference does."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from refusals import refused

from tiering import native
from tiering.datasets.open import open_dataset

torch = pytest.importorskip("torch")


@pytest.mark.parametrize("count", [0, 1, 2, 623, 625, 100_003])
@pytest.mark.parametrize("seed", [0, 42, 2**32 - 1])
def test_a_permutation_is_the_one_that_torch_draws(count, seed):
    drawn = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
    assert np.array_equal(native.torch_permutation(count, seed), drawn.numpy())


@pytest.fixture
def papers(igb_dir: Path) -> Path:
    """A tree of 1,000 papers, of which the first 700 have a label."""
    folder = igb_dir / "paper"
    (folder / "train_idx.npy").unlink()
    labels = np.full(1000, np.nan, np.float32)
    labels[:700] = np.arange(700) % 19
    np.save(folder / "node_feat.npy", np.ones((1000, 8), np.float16))
    np.save(folder / "node_label_19.npy", labels)
    np.save(folder / "node_label_2K.npy", labels)
    return igb_dir


def splits_of(tree: Path, **options: object) -> dict[str, list[int]]:
    with open_dataset(tree, **options) as data:
        return {name: ids.tolist() for name, ids in data.nodes["paper"].splits.items()}


def test_igb_takes_the_labeled_prefix_in_order(papers):
    splits = splits_of(papers, split="igb")
    assert splits == {"train": [*range(420)], "val": [*range(420, 560)], "test": [*range(560, 700)]}


def test_igb_draws_where_all_are_labeled(papers):
    np.save(papers / "paper/node_label_19.npy", np.zeros(1000, np.float32))
    splits = splits_of(papers, split="igb", split_seed=3)
    assert [len(ids) for ids in splits.values()] == [600, 200, 200]
    assert sorted(itertools.chain(*splits.values())) == [*range(1000)]
    assert splits["train"] != [*range(600)]
    assert splits != splits_of(papers, split="igb", split_seed=4)


def test_mlperf_writes_what_its_script_does(papers):
    torch.manual_seed(42)
    order = torch.randperm(700).tolist()
    assert splits_of(papers, split="mlperf") == {"train": order[:420], "val": order[420:423]}
    torch.manual_seed(42)
    order = torch.randperm(800).tolist()  # as with padding behind the labels, which the script counts
    np.save(papers / "paper/node_label_19.npy", np.zeros(1000, np.float32))
    assert splits_of(papers, split="mlperf", num_labelled=800) == {"train": order[:480], "val": order[480:484]}


def test_the_files_of_the_script_are_read(papers):
    torch.save(torch.tensor([5, 3, 699]), papers / "train_idx.pt")
    torch.save(torch.tensor([4]), papers / "val_idx.pt")
    assert splits_of(papers, split="official") == {"train": [5, 3, 699], "val": [4]}
    assert splits_of(papers) == {"train": [5, 3, 699], "val": [4]}
    assert len(splits_of(papers, split="igb")["train"]) == 420
    torch.save(torch.tensor([4, 1000]), papers / "val_idx.pt")
    refused(r"val_idx.pt: expected ids 0..999, found 1000 at position 1", papers)
    torch.save(torch.tensor([0.5]), papers / "val_idx.pt")
    refused(r"val_idx.pt: expected node ids, found float32", papers)


def test_official_splits_need_files(papers):
    refused(r"--split official: .* has no files of splits; give fractions", papers, split="official")
    np.save(papers / "paper/train_idx.npy", np.array([7, 1]))
    assert splits_of(papers, split="official") == {"train": [7, 1]}


def test_the_rule_is_recorded(papers, tmp_path, tiering_cli):
    tiering_cli(
        "import", papers, "--out", tmp_path / "g", "--split", "MLPerf", "--self-loops", "remove", "--add-reverse"
    ).ok()
    changes = tiering_cli("info", tmp_path / "g", "--json").ok().json["changes"]
    assert changes["splits"] == {"made": "mlperf", "of": 700}
    assert changes["options"] == {"split": "MLPerf", "self_loops": "remove", "reverse_edges": True}


@pytest.mark.parametrize(("arguments", "message"), [
    (["--split", "mlprf"], "--split: expected one of official, igb, mlperf, or fractions such as 0.6,0.2,0.2"),
    (["--split", "0.6;0.4"], "--split: expected three fractions"),
])  # fmt: skip
def test_wrong_rules(papers, tmp_path, tiering_cli, arguments, message):
    tiering_cli("import", papers, "--out", tmp_path / "g", *arguments).refused(message)


def test_a_rule_that_leaves_nothing_to_train_on(igb_dir):
    labels = np.array([0, np.nan, np.nan, np.nan], np.float32)
    np.save(igb_dir / "paper/node_label_19.npy", labels)
    refused("split mlperf of 1 labeled nodes leaves the train set empty", igb_dir, split="mlperf")
