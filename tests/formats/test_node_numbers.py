"""Whole numbers that a source has as ids come back through every stage, as names do: by ids of the graph, and found."""

from __future__ import annotations

import decimal
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
import pytest
import torch

import tiering
from tiering.errors import InputError, MissingError

IDS = {  # kind of the source -> ids, in the order of a table of nodes
    "int64": [40, -7, 5, -(2**63), 2**63 - 1, 900, 12],
    "uint64": [2**64 - 1, 5, 2**63, 2**63 + 1, 0, 900, 12],
    "decimal": [decimal.Decimal(one) for one in (40, 2**63 + 9, 5, 0, 77, 900, 12)],
}
KINDS = {"int64": pa.int64(), "uint64": pa.uint64(), "decimal": pa.decimal128(38, 0)}


def write_edges(folder: Path, kind: str) -> list[tuple[int, int]]:
    """Three files of edges between all pairs of different ids; returns the edges."""
    folder.mkdir()
    pairs = list(itertools.permutations(IDS[kind], 2))
    for k in range(3):
        ends = zip(*pairs[k::3], strict=True)
        columns = {name: pa.array(end, KINDS[kind]) for name, end in zip(("src", "dst"), ends, strict=True)}
        pa_parquet.write_table(pa.table(columns), folder / f"part-{k}.parquet")
    return sorted((int(u), int(v)) for u, v in pairs)


def staged(graph: Any, folder: Path) -> tuple[Any, Any]:
    """The graph in another order, and a layout of it."""
    scores = np.random.default_rng(1).permutation(graph.num_nodes()).astype(np.float64)
    tiering.score_graph(graph.path, folder / "s", scores=scores)
    reordered = tiering.reorder_graph(graph.path, folder / "s", folder / "r")
    return reordered, tiering.write_layout(reordered, folder / "l")


def edges_by_numbers(graph: Any) -> list[tuple[int, int]]:
    source, _, target = graph.relations[0]
    sources, targets = graph.names(source), graph.names(target)
    indptr, indices = graph.csc()
    ends = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    return sorted(zip(sources.of(indices).tolist(), targets.of(ends).tolist(), strict=True))


def check(graph: Any, node_type: str, expected: list[int]) -> None:
    numbers = graph.names(node_type)
    found = numbers.of(torch.arange(len(numbers)))
    assert len(numbers) == graph.num_nodes(node_type) and found.dtype in (np.int64, np.uint64)
    assert sorted(found.tolist()) == sorted(expected)
    for given in (found, found.tolist(), torch.from_numpy(found.view(np.int64)) if found.dtype == np.int64 else found):
        assert numbers.find(given).tolist() == list(range(len(numbers)))
    assert numbers.find([]).tolist() == numbers.of([]).tolist() == []


@pytest.mark.parametrize("kind", IDS)
@pytest.mark.parametrize("way", ["compact", "tables"])
def test_numbers_come_back_through_every_stage(tmp_path: Path, kind: str, way: str) -> None:
    pairs, ids = write_edges(tmp_path / "edges", kind), [int(one) for one in IDS[kind]]
    if way == "compact":
        graph = tiering.import_graph(tmp_path / "edges", tmp_path / "g", compact_ids=True)
    else:
        nodes = pa.table({"id": pa.array(IDS[kind], KINDS[kind]), "x": pa.array(range(len(ids)), pa.float32())})
        pa_parquet.write_table(nodes, tmp_path / "n.parquet")
        sources = {"relations": {("n", "to", "n"): tmp_path / "edges"}, "nodes": {"n": tmp_path / "n.parquet"}}
        graph = tiering.import_graph(**sources, out=tmp_path / "g", features="x")
        assert graph.names().of(range(len(ids))).tolist() == ids  # in the order of the table
    reordered, layout = staged(graph, tmp_path)
    name = graph.node_types[0]
    with layout:
        for one in (graph, reordered, layout.graph):
            check(one, name, ids)
            assert edges_by_numbers(one) == pairs
        by_rank = graph.names().of(reordered.new_to_old())
        assert by_rank.tolist() == reordered.names().of(range(len(ids))).tolist()
        if way == "tables":  # features of a batch belong to the ids of its nodes
            for batch in layout.loader(seeds=torch.arange(len(ids)), batch_size=3, fanouts=[2], device="cpu"):
                found = layout.graph.names().of(batch.nodes[name])
                assert [ids[int(row)] for row in batch.features[name][:, 0]] == found.tolist()
            ranks = layout.graph.names().find(ids)
            assert layout.features(name, device="cpu").gather(ranks)[:, 0].tolist() == list(range(len(ids)))


@pytest.mark.parametrize("suffix", ["txt", "parquet"])
def test_ids_less_the_first_come_back(tmp_path: Path, suffix: str) -> None:
    pairs = [(7, 9), (9, 8), (8, 7), (11, 7)]
    path = tmp_path / f"e.{suffix}"
    if suffix == "txt":
        path.write_text("".join(f"{u} {v}\n" for u, v in pairs))
    else:
        src, dst = zip(*pairs, strict=True)
        pa_parquet.write_table(pa.table({"src": src, "dst": dst}), path, row_group_size=2)
    graph = tiering.import_graph(path, tmp_path / "g", first_id=7)
    reordered, layout = staged(graph, tmp_path)
    with layout:
        for one in (graph, reordered, layout.graph):
            check(one, "node", [7, 8, 9, 10, 11])
            assert edges_by_numbers(one) == sorted(pairs)
        with pytest.raises(MissingError, match="no node of type node has the id 6"):
            reordered.names().find([7, 6])


def test_rows_of_inference_are_found_by_numbers(tmp_path: Path) -> None:
    write_edges(tmp_path / "edges", "uint64")
    ids = np.array(IDS["uint64"], np.uint64)
    nodes = pa.table({"id": pa.array(IDS["uint64"], pa.uint64()), "x": pa.array(range(len(ids)), pa.float32())})
    pa_parquet.write_table(nodes, tmp_path / "n.parquet")
    sources = {"relations": {("n", "to", "n"): tmp_path / "edges"}, "nodes": {"n": tmp_path / "n.parquet"}}
    graph = tiering.import_graph(**sources, out=tmp_path / "g", features="x")
    _, layout = staged(graph, tmp_path)
    with layout:
        made = layout.inference([lambda block, rows: rows[: block.num_dst] + 1], tmp_path / "emb", device="cpu")
        assert made[layout.graph.names().find(ids)][:, 0].tolist() == [k + 1 for k in range(len(ids))]


def test_numbers_that_are_not_there(tmp_path: Path) -> None:
    (tmp_path / "e.txt").write_text("5 900\n900 12\n")
    graph = tiering.import_graph(tmp_path / "e.txt", tmp_path / "g", compact_ids=True)
    numbers = graph.names()
    for missing in (13, -1, 2**63, 2**64 + 5, -(2**70), 0):
        with pytest.raises(MissingError, match=f"no node of type node has the id {missing}"):
            numbers.find([5, missing])
    for wrong in (5.0, "5", True, None):
        with pytest.raises(InputError, match="ids of node are whole numbers, found "):
            numbers.find([5, wrong])
    for outside in (-1, 3):
        with pytest.raises(MissingError, match=rf"expected ids 0..2 of node, found {outside}"):
            numbers.of([0, outside])
    (tmp_path / "f.txt").write_text("0 1\n")
    assert tiering.import_graph(tmp_path / "f.txt", tmp_path / "n").names() is None
