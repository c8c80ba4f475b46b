"""Which node types batches reach, against a walk over the edges of random graphs; what users are told of the others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tiering.artifacts.manifest import relation_key
from tiering.formats.reach import reached_types

RELATIONS = st.lists(
    st.tuples(*[st.sampled_from("abcde"), st.sampled_from("rs"), st.sampled_from("abcde")]), unique=True
)
TOLD = "no training node reaches author"


@given(relations=RELATIONS, seeds=st.sets(st.sampled_from("abcde")), data=st.data())
def test_types_are_those_that_some_path_of_drawn_edges_leads_from(relations: Any, seeds: Any, data: Any) -> None:
    hop = st.integers(-1, 2) | st.fixed_dictionaries({relation_key(r): st.integers(-1, 1) for r in relations})
    fanouts = data.draw(st.none() | st.lists(hop, max_size=4))

    def walk(node_type: str, hop: int) -> set[str]:
        found = {node_type}
        for relation in relations if hop < (6 if fanouts is None else len(fanouts)) else ():
            fanout = -1 if fanouts is None else fanouts[hop]
            if relation[2] == node_type and (fanout if isinstance(fanout, int) else fanout[relation_key(relation)]):
                found |= walk(relation[0], hop + 1)
        return found

    expected = set().union(*(walk(seed, 0) for seed in seeds))
    assert reached_types(relations, seeds, fanouts) == expected


@pytest.fixture
def papers(tmp_path: Path) -> Path:
    """Authors that no paper aggregates, with features; the training nodes are papers."""
    folder = tmp_path / "data" / "processed"
    for node_type in ("paper", "author"):
        (folder / node_type).mkdir(parents=True)
        np.save(folder / node_type / "node_feat.npy", np.ones((8, 4), np.float32))
    np.save(folder / "paper" / "node_label_19.npy", np.zeros(8))
    np.save(folder / "paper" / "train_idx.npy", np.arange(3))
    for relation in ("paper__cites__paper", "paper__written_by__author"):
        (folder / relation).mkdir()
        np.save(folder / relation / "edge_index.npy", np.stack([np.arange(8), np.roll(np.arange(8), 1)], axis=1))
    (folder / "meta.json").write_text(json.dumps({"num_nodes": {"paper": 8, "author": 8}}))
    return tmp_path / "data"


@pytest.mark.parametrize("reverse", [False, True])
def test_rows_that_no_batch_reads_are_named(
    papers: Path, tmp_path: Path, tiering_cli: Callable[..., Any], reverse: bool
) -> None:
    """By `score` and `layout`, run and dry run, with the option that gives batches a way to them."""
    graph, ranked = tmp_path / "graph", tmp_path / "ranked"
    made = tiering_cli("import", papers, "--out", graph, *(["--add-reverse"] if reverse else []))
    assert made.code == 0, made.err
    fanouts = ["--method", "hybrid", "--fanouts", "2,2"]
    dry = tiering_cli("score", graph, "--out", tmp_path / "scores", *fanouts, "--dry-run")
    scored = tiering_cli("score", graph, "--out", tmp_path / "scores", *fanouts)
    assert tiering_cli("reorder", graph, "--scores", tmp_path / "scores", "--out", ranked).code == 0
    laid = tiering_cli("layout", ranked, "--out", tmp_path / "layout", "--cpu", "100%")
    assert (dry.code, scored.code, laid.code) == (0, 0, 0)
    told = [TOLD in " ".join(each.split()) for each in (dry.out, scored.err, laid.err)]
    assert told == [not reverse] * 3
    if not reverse:
        words = "no batch reads their feature rows, 128 B; import the graph with --add-reverse (under [dataset]: "
        assert f"note: {TOLD} within 2 hops: {words}reverse_edges = true) to use them\n" in scored.err
        assert f"note: {TOLD}: {words}reverse_edges = true) to use them\n" in laid.err


def test_scores_without_training_nodes_name_none(papers: Path, tmp_path: Path, tiering_cli: Callable[..., Any]) -> None:
    assert tiering_cli("import", papers, "--out", tmp_path / "graph").code == 0
    done = tiering_cli("score", tmp_path / "graph", "--out", tmp_path / "scores", "--method", "degree")
    assert (done.code, TOLD in done.err) == (0, False)
