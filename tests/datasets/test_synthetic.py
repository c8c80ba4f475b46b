"""The generator: exact sizes, the same bytes, and labels that only a model with neighbors finds."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering import generate_dataset
from tiering.datasets import generated
from tiering.datasets.generated import EDGE_BLOCK, KeyedPermutation
from tiering.datasets.open import open_dataset
from tiering.errors import ExistsError, InputError, StorageError


@settings(max_examples=50)
@given(size=st.integers(1, 300), seed=st.integers(0, 2**64 - 1))
def test_shuffle_is_a_bijection(size: int, seed: int) -> None:
    shuffle = KeyedPermutation(size, (seed, 1))
    values = np.arange(size)
    image = shuffle.forward(values)
    assert sorted(image.tolist()) == list(range(size))
    assert np.array_equal(shuffle.forward(image, inverse=True), values)


def test_shuffle_at_large_sizes() -> None:
    size = 2**40 + 12345
    values = np.random.default_rng(0).integers(0, size, 10_000)
    shuffle = KeyedPermutation(size, (7, 7))
    image = shuffle.forward(values)
    assert image.min() >= 0
    assert image.max() < size
    assert np.array_equal(shuffle.forward(image, inverse=True), values)
    assert abs(np.corrcoef(values, image)[0, 1]) < 0.05


def digests(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file())
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in files}


@pytest.mark.parametrize("hetero", [False, True])
def test_golden_bytes(tmp_path: Path, hetero: bool) -> None:
    """The bytes of a seed are a promise across versions and machines: change them knowingly."""
    for seed in (1, 2):
        generate_dataset(tmp_path / str(seed), nodes=1000, edges=4000, dim=16, classes=4, seed=seed, hetero=hetero)
    first, other = digests(tmp_path / "1"), digests(tmp_path / "2")
    assert hashlib.sha256("".join(f"{k}{v}" for k, v in first.items()).encode()).hexdigest() == GOLDEN[hetero]
    assert first.keys() == other.keys()
    assert not {k for k in first if first[k] == other[k]}


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_exact_sizes_over_several_blocks(tmp_path: Path, dtype: str) -> None:
    nodes, edges = 70_001, 2 * EDGE_BLOCK + 17
    generate_dataset(tmp_path / "g", nodes=nodes, edges=edges, dim=33, classes=5, seed=3, dtype=dtype)
    with open_dataset(tmp_path / "g") as data:
        paper, cites = data.nodes["paper"], data.edges[0]
        src, dst = np.array(cites.src), np.array(cites.dst)
        assert cites.num_edges == edges
        assert src.min() >= 0 and max(src.max(), dst.max()) < nodes
        assert not (src == dst).any()
        assert (paper.features.rows, paper.features.dim, paper.features.dtype) == (nodes, 33, dtype)
        assert np.bincount(paper.labels).tolist() == [nodes * (k + 1) // 5 - nodes * k // 5 for k in range(5)]
        assert {k: len(v) for k, v in paper.splits.items()} == {"train": 7000, "val": 3500, "test": 7000}
        assert "warnings" not in data.notes
        assert 0.7 < (paper.labels[src] == paper.labels[dst]).mean() < 0.8
        for ids in (src, dst):
            degrees = np.sort(np.bincount(ids, minlength=nodes))[::-1]
            assert degrees[: nodes // 100].sum() > 0.08 * edges, "power law"
            assert abs(np.corrcoef(np.arange(nodes), np.bincount(ids, minlength=nodes))[0, 1]) < 0.02


def test_hetero(tmp_path: Path) -> None:
    generate_dataset(
        tmp_path / "g", nodes=5000, edges=20_003, dim=8, classes=4, seed=2, hetero=True, featureless=["fos"]
    )
    with open_dataset(tmp_path / "g") as data:
        counts = {"author": 2000, "fos": 400, "institute": 100, "paper": 2500}
        assert {k: v.num_nodes for k, v in data.nodes.items()} == counts
        assert sum(e.num_edges for e in data.edges) == 20_003
        assert data.nodes["fos"].features is None
        assert data.nodes["author"].features is not None
        assert "inferred" not in data.notes
        assert list(data.nodes["author"].splits) == []
        for edge in data.edges:
            assert edge.src.max() < data.nodes[edge.relation[0]].num_nodes
            assert edge.dst.max() < data.nodes[edge.relation[2]].num_nodes
        edges = {edges.relation: edges for edges in data.edges}
        forward, back = edges["paper", "topic", "fos"], edges["fos", "rev_topic", "paper"]
        assert np.array_equal(forward.src, back.dst)
        assert np.array_equal(forward.dst, back.src)


def ridge_accuracy(x: np.ndarray, labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """Accuracy of a linear classifier by regularized least squares on one-hot labels."""
    x = np.hstack([x, np.ones((len(x), 1), x.dtype)])
    target = np.eye(labels.max() + 1)[labels[train]]
    weights = np.linalg.solve(x[train].T @ x[train] + 10 * np.eye(x.shape[1]), x[train].T @ target)
    return float(((x[test] @ weights).argmax(1) == labels[test]).mean())


def test_neighbors_beat_features_alone(tmp_path: Path) -> None:
    generate_dataset(tmp_path / "g", nodes=20_000, edges=200_000, dim=64, classes=8, seed=1, split=(0.3, 0, 0.3))
    with open_dataset(tmp_path / "g") as data:
        paper, cites = data.nodes["paper"], data.edges[0]
        assert paper.features is not None and paper.labels is not None
        x = np.array(paper.features.open(), np.float64)
        mean = np.zeros_like(x)
        np.add.at(mean, np.array(cites.dst), x[np.array(cites.src)])
        mean /= np.maximum(np.bincount(cites.dst, minlength=len(x)), 1)[:, None]
        train, test = paper.splits["train"], paper.splits["test"]
        alone = ridge_accuracy(x, paper.labels, train, test)
        aggregated = ridge_accuracy(np.hstack([x, mean]), paper.labels, train, test)
        assert alone < 0.6
        assert aggregated > 0.8


def test_existing_output(tmp_path: Path) -> None:
    options: dict[str, Any] = {"nodes": 100, "edges": 100, "dim": 2, "classes": 2}
    generate_dataset(tmp_path / "g", seed=0, **options)
    before = digests(tmp_path / "g")
    with pytest.raises(ExistsError, match="already exists"):
        generate_dataset(tmp_path / "g", seed=1, **options)
    assert digests(tmp_path / "g") == before
    generate_dataset(tmp_path / "g", seed=1, force=True, **options)
    assert digests(tmp_path / "g") != before
    shutil.rmtree(tmp_path / "g" / "processed")
    (tmp_path / "g" / "thesis.tex").write_text("years of work")
    with pytest.raises(ExistsError, match=r"has .*thesis\.tex, which tiering did not write"):
        generate_dataset(tmp_path / "g", seed=1, force=True, **options)
    assert (tmp_path / "g" / "thesis.tex").exists()


def test_full_disk_is_noticed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generated, "disk_free", lambda path: 1000)
    with pytest.raises(StorageError, match=r"not enough disk space: .*needed, 1000 B free"):
        generate_dataset(tmp_path / "g", nodes=1000, edges=1000)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("options", "message"), [
    ({"nodes": 1}, "nodes: expected 2 to"), ({"edges": -1}, "edges: expected 0 to"), ({"dim": 0}, "dim: expected 1 to"),
    ({"classes": 0}, "classes: expected 1 to"),
    ({"classes": 60}, "nodes: 100 paper nodes are too few for 60 classes"),
    ({"hetero": True}, "nodes: 2 institute nodes are too few for 2 classes"),
    ({"seed": -1}, "seed: expected 0 to"),
    ({"dtype": "int8"}, "dtype: expected float32, float16, bfloat16, found 'int8'"),
    ({"split": (0.001, 0, 0)}, "leaves the train set empty"),
    ({"split": (0.6, 0.6, 0)}, "split: expected three fractions"),
    ({"featureless": ["fos"]}, "featureless: expected some of no type .give hetero., found 'fos'"),
])  # fmt: skip
def test_bad_parameters(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        generate_dataset(tmp_path / "g", **{"nodes": 100, "edges": 100, "dim": 2, "classes": 2, **options})
    assert list(tmp_path.iterdir()) == []


GOLDEN = (
    "9224a156b36225ff60e7c856fc2128e192734f8b450f6daa24ade15e1cd0e997",
    "a30ca271f97af4a1ccab82d0dd868a2d3cd6d2c6e89c65d07908381c4f5f8ad8",
)  # of one type of node, of several
