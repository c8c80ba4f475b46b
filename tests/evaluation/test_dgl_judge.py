"""DGL's sampler as judge: it agrees with ours within the error bars, repeats, and says what it cannot do."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judged_graphs import import_graph, star_graph, two_types

from tiering.datasets.generated.synthetic import generate
from tiering.errors import CapabilityError, InputError
from tiering.evaluation import Evaluation, evaluate
from tiering.scores import score_graph

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def dgl() -> Any:
    return pytest.importorskip("dgl")


def agree(ours: Evaluation, theirs: Evaluation, widen: float = 1.0) -> None:
    """Rates of every score, type and capacity differ by no more than both intervals allow; the oracle's by 0.02."""
    assert ours.hit_rates["oracle"] == pytest.approx(theirs.hit_rates["oracle"], abs=0.02)
    pairs = [(ours.scores, theirs.scores)]
    pairs += [(ours.types[t].scores, theirs.types[t].scores) for t in ours.types]
    compared = 0
    for mine, other in pairs:
        for name in set(mine) - {"oracle"}:
            ends = np.array(mine[name].intervals), np.array(other[name].intervals)
            allowed = widen * np.sqrt(sum(np.diff(each, axis=1).ravel() ** 2 for each in ends)) / 2
            difference = np.abs(np.array(mine[name].hit_rates) - other[name].hit_rates)
            assert np.all(difference <= allowed + 1e-3), (name, difference, allowed)
            compared += difference.size
    assert compared


@pytest.mark.parametrize(("name", "train", "batch_size"), [("tolokers", None, 256), ("cnr-2000", "1%", 256)])
def test_agrees_with_ours(
    dgl: Any, shared_data: Path, tmp_path: Path, name: str, train: str | None, batch_size: int
) -> None:
    graph = import_graph(shared_data / name, tmp_path / "graph")
    scores = {m: score_graph(graph, m, tmp_path / m, train=train) for m in ("degree", "wrpr")}
    options: dict[str, Any] = {"batch_size": batch_size, "train": train, "epochs": 2}
    ours = evaluate(graph, scores, [5, 10], **options)
    theirs = evaluate(graph, scores, [5, 10], judge="dgl", **options)
    agree(ours, theirs)
    assert theirs.parameters["judge"] == f"dgl {dgl.__version__}"
    assert ours.accesses == pytest.approx(theirs.accesses, rel=0.01)
    assert ours.hit_rates != theirs.hit_rates


def test_agrees_with_ours_drawing_with_replacement(dgl: Any, shared_data: Path, tmp_path: Path) -> None:
    graph = import_graph(shared_data / "dblp-citation", tmp_path / "graph")
    scores = {"wrpr": score_graph(graph, "wrpr", tmp_path / "wrpr")}
    options: dict[str, Any] = {"batch_size": 64, "epochs": 2, "sampler": "replacement"}
    ours, theirs = (evaluate(graph, scores, [10, 10], judge=judge, **options) for judge in ("own", "dgl"))
    agree(ours, theirs)
    assert ours.accesses == pytest.approx(theirs.accesses, rel=0.01)
    without = evaluate(graph, scores, [10, 10], batch_size=64, epochs=2)
    assert without.accesses > 1.05 * ours.accesses


def test_fanouts_are_reversed_for_dgl(dgl: Any, tmp_path: Path) -> None:
    """Node 0 aggregates 1 .. 9, and each of these 10 .. 18.

    Fanouts 1,9: one of 1 .. 9, then all of them (0 samples again) and all of 10 .. 18: 19 rows. Fanouts 9,1: all of
    1 .. 9, and one of 10 .. 18 for each of them, which are not all different.
    """
    folder = tmp_path / "tree"
    folder.mkdir()
    leaves = np.stack([np.tile(np.arange(10, 19), 9), np.repeat(np.arange(1, 10), 9)])
    hubs = np.stack([np.arange(1, 10), np.zeros(9, np.int64)])
    np.save(folder / "edge_index.npy", np.concatenate([hubs, leaves], axis=1))
    graph = import_graph(folder, tmp_path / "graph")
    reads = [
        evaluate(graph, {}, fanouts, train=[0], epochs=1, judge=judge).accesses
        for fanouts in ([1, 9], [9, 1])
        for judge in ("own", "dgl")
    ]
    assert reads[:2] == [19, 19] and max(reads[2:]) < 19 and min(reads[2:]) > 10


def test_heterogeneous_with_fanouts_per_relation(dgl: Any, tmp_path: Path) -> None:
    generate(tmp_path / "data", nodes=4000, edges=40_000, dim=4, classes=3, seed=1, hetero=True, featureless=["fos"])
    graph = import_graph(tmp_path / "data", tmp_path / "graph")
    hop = {relation: k % 4 for k, relation in enumerate(graph.relations)}
    wrpr = {"wrpr": score_graph(graph, "wrpr", tmp_path / "wrpr")}
    options: dict[str, Any] = {"batch_size": 32, "epochs": 3, "row_bytes": {"fos": 100}}
    ours = evaluate(graph, wrpr, [hop, 2, hop], **options)
    theirs = evaluate(graph, wrpr, [hop, 2, hop], judge="dgl", **options)
    agree(ours, theirs)
    for node_type, entry in ours.types.items():
        assert entry.accesses == pytest.approx(theirs.types[node_type].accesses, rel=0.03)


def test_dgl_runs_repeat(dgl: Any, shared_data: Path, tmp_path: Path) -> None:
    graph = import_graph(shared_data / "cora", tmp_path / "graph")
    degree = {"degree": score_graph(graph, "degree", tmp_path / "degree")}
    options: dict[str, Any] = {"judge": "dgl", "batch_size": 32, "epochs": 2}
    first, again, other = (
        evaluate(graph, degree, [5, 5], **options, seed=seed, threads=threads).to_json(curves=True)
        for seed, threads in ((0, 1), (0, 3), (1, 1))
    )
    assert first == again
    assert first["hit_rates"] != other["hit_rates"]


def test_all_neighbours_are_the_same_for_both(dgl: Any, tmp_path: Path) -> None:
    graph = two_types(tmp_path / "source")
    ours, theirs = (evaluate(graph, {}, [-1], batch_size=1, epochs=2, judge=judge) for judge in ("own", "dgl"))
    assert ours.hit_rates == theirs.hit_rates and ours.accesses == theirs.accesses == 16


def test_what_dgl_does_not_do(dgl: Any, tmp_path: Path) -> None:
    star = star_graph(tmp_path / "star")
    with pytest.raises(InputError, match=r"judge dgl: .* 'all' only, found 'new'"):
        evaluate(star, {}, [2], train=[1], judge="dgl", frontier="new")
    with pytest.raises(InputError, match=r"judge dgl: .*uniform, replacement, full, not 'weighted'; use --judge own"):
        evaluate(star, {}, [2], train=[1], judge="dgl", sampler="weighted")


def test_without_dgl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    star = star_graph(tmp_path / "star")
    monkeypatch.setitem(sys.modules, "dgl", None)
    with pytest.raises(CapabilityError, match=r"judge dgl: DGL cannot be loaded.*pip install.*--judge own"):
        evaluate(star, {}, [2], train=[1], judge="dgl")
