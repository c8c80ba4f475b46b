"""Features of edges, from the user's files to batches, against the source's own rows by the ids of the edges."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from damage import damaged, flipped

import tiering
from tiering.errors import InputError, MissingError
from tiering.memory import own_memory

NODES, EDGES = 60, 500
STORED = {"float16": "<f2", "float32": "<f4", "bfloat16": "<u2", "uint8": "|u1", "int64": "<i8"}


def rows_of(count: int, dim: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Random rows as they are stored, no two alike."""
    rows = np.random.default_rng(seed).integers(0, 256, (count, dim * np.dtype(dtype).itemsize), dtype=np.uint8)
    return rows.view(dtype)


def write_source(folder, dtype: str = "float32", dim: int = 5, edges: int = EDGES, nodes: int = NODES) -> np.ndarray:
    """A graph with hubs, duplicates, self loops and isolated nodes in npy format; its rows of edge features."""
    random = np.random.default_rng(3)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "edge_index.npy", (nodes * random.random((2, edges)) ** 2).astype(np.int64))
    np.save(folder / "node_feat.npy", random.standard_normal((nodes, 4), dtype=np.float32))
    np.save(folder / "node_label.npy", random.integers(0, 3, nodes))
    np.save(folder / "train_idx.npy", random.permutation(nodes)[: nodes // 2])
    rows = rows_of(edges, dim, STORED[dtype])
    np.save(folder / "edge_feat.npy", rows)
    return rows


def assert_rows(graph, rows: np.ndarray, relation=None) -> None:
    """Each edge of a graph has the row that the source gives it."""
    data = graph.edge_data(relation)
    assert data["feat"].dtype == rows.dtype
    np.testing.assert_array_equal(data["feat"].view(np.uint8), rows[data["edge_ids"]].view(np.uint8))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int64"])
def test_rows_go_with_their_edges_through_import_and_reorder(tiering_cli, tmp_path, dtype):
    rows = write_source(tmp_path / "source", dtype)
    graph, reordered = tmp_path / "graph", tmp_path / "reordered"
    tiering_cli("import", tmp_path / "source", "--edge-ids", "--out", graph).ok()
    tiering_cli("score", graph, "--method", "degree", "--out", tmp_path / "scores").ok()
    tiering_cli("reorder", graph, "--scores", tmp_path / "scores", "--out", reordered).ok()
    src, dst = np.load(tmp_path / "source/edge_index.npy")
    for path in (graph, reordered):
        opened = tiering.open(path)
        assert_rows(opened, rows)
        indptr, indices = opened.csc()
        old = opened.new_to_old() if path == reordered else np.arange(NODES)
        ends = old[indices], old[np.repeat(np.arange(NODES), np.diff(indptr))]
        ids = opened.edge_data()["edge_ids"]
        for found, wanted in zip(ends, (src, dst), strict=True):
            np.testing.assert_array_equal(found, wanted[ids])
        tiering_cli("check", path, "--full").ok()


@pytest.mark.slow
def test_a_tight_budget_counts_wide_rows_and_gives_the_same_bytes(tiering_cli, tmp_path, settled_memory):
    rows = write_source(tmp_path / "source", dim=512, edges=40_000, nodes=2_000)
    least = own_memory() + (72 << 20)  # the rows alone are 78 MiB
    tight, roomy = ("--memory", str(least)), ("--memory", "4GiB")
    asked = ("import", tmp_path / "source", "--edge-ids", "--out", tmp_path / "tight")
    steps = tiering_cli(*asked, *tight, "--dry-run", "--json").ok().json
    assert "buckets" in str(steps), steps
    tiering_cli(*asked, *tight).ok()
    tiering_cli(*asked[:-1], tmp_path / "roomy", *roomy).ok()
    opened = tiering.open(tmp_path / "tight")
    assert_rows(opened, rows)
    assert opened.manifest.files == tiering.open(tmp_path / "roomy").manifest.files
    tiering_cli("score", tmp_path / "tight", "--method", "degree", "--out", tmp_path / "scores").ok()
    reorder = ("reorder", tmp_path / "tight", "--scores", tmp_path / "scores")
    tiering_cli(*reorder, "--memory", str(own_memory() + (120 << 20)), "--out", tmp_path / "a").ok()
    tiering_cli(*reorder, *roomy, "--out", tmp_path / "b").ok()
    assert_rows(tiering.open(tmp_path / "a"), rows)
    assert tiering.open(tmp_path / "a").manifest.files == tiering.open(tmp_path / "b").manifest.files


def lay_out(tiering_cli, folder, *options, tiers=("--gpu", "25%", "--peer", "2x10%", "--cpu", "20%"), imports=()):
    """Import with ids of edges, score by the sampler, reorder, lay out on two disks; the layout's directory."""
    tiering_cli("import", folder / "source", "--edge-ids", "--out", folder / "graph", *imports).ok()
    score = ("score", folder / "graph", "--method", "vip", "--fanouts", "4,3", "--batch-size", 8)
    tiering_cli(*score, "--out", folder / "scores").ok()
    tiering_cli("reorder", folder / "graph", "--scores", folder / "scores", "--out", folder / "reordered").ok()
    disks = ("--ssd", folder / "ssd0", "--ssd", folder / "ssd1")
    asked = ("layout", folder / "reordered", *tiers, *disks, *options, "--out", folder / "layout")
    foreseen = tiering_cli(*asked, "--dry-run", "--json").ok().json
    tiering_cli(*asked).ok()
    assert "rows of " in str(foreseen)
    assert tiering_cli("check", folder / "layout", "--full", "--json").ok().json["sound"]
    return folder / "layout"


def as_bits(rows) -> np.ndarray:
    """Rows, NumPy's or torch's, as bytes."""
    if isinstance(rows, np.ndarray):
        return np.ascontiguousarray(rows).view(np.uint8)
    return rows.contiguous().view(torch.uint8).numpy()


def assert_edges_have_their_rows(layout, rows: np.ndarray, relation, positions, found) -> None:
    """`found` are the source's rows of the edges that stand at `positions`."""
    ids = layout.graph.edge_data(relation)["edge_ids"][positions]
    np.testing.assert_array_equal(as_bits(found), as_bits(rows[ids]))


@pytest.mark.parametrize(("dtype", "scored"), [("uint8", False), ("float32", True), ("bfloat16", True)])
def test_every_tier_serves_rows_of_edges(tiering_cli, tmp_path, dtype, scored):
    rows = write_source(tmp_path / "source", dtype)
    path = lay_out(tiering_cli, tmp_path, *(("--scores", tmp_path / "scores") if scored else ()))
    with tiering.open(path) as layout:
        assert layout.feature_types == ["node"]
        assert layout.edge_feature_relations == [("node", "to", "node")]
        table = layout.edge_features(verify=True)
        assert table.shape == rows.shape and table.dtype == dtype
        assert min(table.placement()[tier]["rows"] for tier in ("gpu", "peer", "cpu", "ssd")) > 0
        positions = np.random.default_rng(1).integers(0, EDGES, 2000)
        assert_edges_have_their_rows(layout, rows, None, positions, table.gather(positions))
        served = table.counters.as_dict()["tiers"]
        assert all(served[tier]["rows"] for tier in ("gpu", "peer", "cpu", "ssd"))
        nodes = np.load(tmp_path / "source/node_feat.npy")[layout.new_to_old()]
        np.testing.assert_array_equal(layout.features().gather(np.arange(NODES)).numpy(), nodes)
        batch = next(iter(layout.loader(fanouts=[4, 3], batch_size=8, edge_features=True)))
        relation = ("node", "to", "node")
        for places, features in zip(batch.positions, batch.edge_features, strict=True):
            assert_edges_have_their_rows(layout, rows, relation, places[relation].numpy(), features[relation])
        for block in batch.blocks():
            places, features = block.positions[relation].numpy(), block.edge_features[relation]
            assert_edges_have_their_rows(layout, rows, relation, places, features)
    shown = tiering_cli("info", path).ok().out
    assert "node:to:node" in shown


def test_rows_in_the_fastest_tier_are_those_read_most_per_byte(tiering_cli, tmp_path):
    """The gpu tier ends among the rows of edges and among those of nodes: none beyond are read more per byte."""
    write_source(tmp_path / "source")
    np.save(tmp_path / "source/node_feat.npy", np.zeros((NODES, 40), np.float32))
    tiers = ("--gpu", "70%", "--cpu", "20%", "--dtype", "float32")
    path = lay_out(tiering_cli, tmp_path, "--scores", tmp_path / "scores", tiers=tiers)
    with tiering.open(path) as layout:
        ends = [layout.artifact.type_layout(name).ranges["gpu"][1] for name in ("node:to:node", "node")]
        order = layout.new_to_old()
        reads = tiering.open(tmp_path / "scores").adjacency()[order]
        indptr, _ = layout.csc()
    # Per row, by position: reads of its list times the share that fanouts 4 and 3 draw of it.
    degree = np.diff(indptr)
    drawn = (np.minimum(degree, 4) + np.minimum(degree, 3)) / 2
    row_reads = np.repeat(reads * drawn / np.maximum(degree, 1), degree)
    hull = [max(np.mean(row_reads[at:end]) for end in range(at + 1, EDGES + 1)) for at in range(EDGES)]
    falling = np.minimum.accumulate(hull) / 20  # bytes of a row
    nodes = np.sort(tiering.open(tmp_path / "scores").values())[::-1] / 160
    budget, (edges, own) = int((EDGES * 20 + NODES * 160) * 0.7), ends
    assert edges > 0 < own < NODES and budget - 160 < edges * 20 + own * 160 <= budget
    # What lies in the tier is worth at least as much per byte as what does not.
    inside, outside = min(falling[edges - 1], nodes[own - 1]), max(falling[edges], nodes[own])
    assert inside >= outside * (1 - 1e-9)


def test_a_flipped_bit_in_any_tier_of_edges_is_found(tiering_cli, tmp_path):
    write_source(tmp_path / "source")
    path = lay_out(tiering_cli, tmp_path)
    with tiering.open(path) as layout:
        unit, unit_bytes = layout.artifact.type_layout("node:to:node").ssd_rows.first_unit, layout.artifact.unit_bytes
        image = layout.artifact.images[unit % 2]
    folder = path / "tiers/node__to__node"
    files = [folder / name for name in ("gpu", "peer-0-of-2", "peer-1-of-2", "cpu")]
    for file, at in [*((file, 7) for file in files), (image, unit // 2 * unit_bytes + 3)]:
        with damaged(file, flipped(file.read_bytes(), 8 * at + 4)):
            said = tiering_cli("check", path, "--full", "--json")
        assert said.code == 1 and file.name in said.out, said
    tiering_cli("check", path, "--full").ok()


@pytest.fixture(scope="module")
def typed(make, tmp_path_factory):
    """A layout of a tree in which ``cites`` has features in float16 and ``writes`` in bfloat16, with reverse edges, so
    that ``rev_writes`` has those of ``writes``; by relation the source's rows."""
    random, folder = np.random.default_rng(5), tmp_path_factory.mktemp("typed")
    counts, rows = {"paper": 80, "author": 50, "venue": 6}, {}
    source = folder / "source"
    for t, count in counts.items():
        (source / t).mkdir(parents=True)
        np.save(source / t / "node_feat.npy", random.standard_normal((count, 3), dtype=np.float32))
    np.save(source / "paper/node_label.npy", random.integers(0, 3, counts["paper"]))
    np.save(source / "paper/train_idx.npy", random.permutation(counts["paper"])[:40])
    relations = {("paper", "cites", "paper"): 400, ("author", "writes", "paper"): 300, ("venue", "prints", "paper"): 80}
    dtypes = {"cites": ("float16", 7), "writes": ("bfloat16", 4)}
    for relation, count in relations.items():
        place = source / "__".join(relation)
        place.mkdir()
        ends = [counts[t] * random.random(count) ** 2 for t in (relation[0], relation[2])]
        np.save(place / "edge_index.npy", np.stack(ends, 1).astype(np.int64))
        np.save(place / "edge_id.npy", np.arange(count))  # reversed edges keep those of the edges that they reverse
        if relation[1] in dtypes:
            dtype, dim = dtypes[relation[1]]
            rows[relation] = rows_of(count, dim, STORED[dtype], seed=dim)
            np.save(place / "edge_feat.npy", rows[relation])
    rows["paper", "rev_writes", "author"] = rows["author", "writes", "paper"]
    path = lay_out(make, folder, imports=["--reverse-edges"])
    with tiering.open(path) as layout:
        yield layout, rows


def test_relations_of_several_types(typed):
    layout, rows = typed
    assert set(layout.edge_feature_relations) == set(rows)
    assert set(layout.feature_types) == {"paper", "author", "venue"}
    for relation, own in rows.items():
        table = layout.edge_features(relation)
        assert table.shape == (layout.num_edges(relation), own.shape[1])
        positions = np.arange(len(table))[::-1].copy()
        assert_edges_have_their_rows(layout, own, relation, positions, table.gather(positions))
    with pytest.raises(MissingError, match=r"edges of venue:prints:paper have no tiered features; .*cites"):
        layout.edge_features("prints")
    with pytest.raises(MissingError, match="no single relation"):
        layout.edge_features()
    with pytest.raises(MissingError, match="is not a node type"):
        layout.features("paper:cites:paper")


def test_batches_for_pyg_have_edge_attr(typed):
    pytest.importorskip("torch_geometric")
    layout, rows = typed
    loader = layout.pyg_loader(num_neighbors=[3, 2], batch_size=16)
    for batch in loader:
        assert set(batch.edge_attr_dict) == set(rows)
        for relation, own in rows.items():
            store = batch[relation]
            np.testing.assert_array_equal(as_bits(store.edge_attr), as_bits(own[store.e_id.numpy()]))
    served = loader.counters()["paper:cites:paper"]["tiers"]
    assert sum(tier["rows"] for tier in served.values()) > 100
    plain = next(iter(layout.pyg_loader(num_neighbors=[3, 2], batch_size=16, edge_attrs=[])))
    assert not hasattr(plain["paper", "cites", "paper"], "edge_attr")


def test_blocks_for_dgl_have_features_of_their_edges(typed):
    dgl = pytest.importorskip("dgl")
    layout, rows = typed
    for _, _, blocks in layout.dgl_loader(fanouts=[2, 3], batch_size=16):
        for block in blocks:
            for relation, own in rows.items():
                data = block.edges[relation].data
                np.testing.assert_array_equal(as_bits(data["feat"]), as_bits(own[data[dgl.EID].numpy()]))


def test_native_batches_on_request(typed):
    layout, rows = typed
    plain, asked = (layout.loader(fanouts=[3, 2], batch_size=16, edge_features=flag) for flag in (False, True))
    for before, batch in zip(plain, asked, strict=True):
        assert before.edge_features == []
        for positions, features in zip(batch.positions, batch.edge_features, strict=True):
            assert set(features) == set(rows)
            for relation, found in features.items():
                places = positions[relation].numpy()
                assert_edges_have_their_rows(layout, rows[relation], relation, places, found)


def test_without_edge_features_in_the_tiers_attributes_come_from_the_graph(tiering_cli, tmp_path):
    rows = write_source(tmp_path / "source", "bfloat16")
    path = lay_out(tiering_cli, tmp_path, "--edge-features", "none")
    with tiering.open(path) as layout:
        assert layout.edge_feature_relations == [] and layout.manifest.requires == ("units",)
        with pytest.raises(MissingError, match="have no tiered features; relations with them: none"):
            layout.edge_features()
        with pytest.raises(InputError, match="no edges have features in the tiers"):
            layout.loader(edge_features=True)
        batch = next(iter(layout.pyg_loader(num_neighbors=[3, 2], batch_size=16)))
        assert batch.edge_attr.dtype == torch.bfloat16
        np.testing.assert_array_equal(as_bits(batch.edge_attr), as_bits(rows[batch.e_id.numpy()]))
    refused = tiering_cli("layout", tmp_path / "reordered", "--edge-features", "some", "--out", tmp_path / "x")
    refused.refused("--edge-features: expected one of auto, none, found 'some'")


def test_the_adjacency_cache_counts_rows_of_edges(tiering_cli, tmp_path):
    rows = write_source(tmp_path / "source")
    options = ("--scores", tmp_path / "scores", "--adjacency-cache", "30%")
    path = lay_out(tiering_cli, tmp_path, *options, tiers=("--gpu", "2KiB", "--cpu", "4KiB"))
    with tiering.open(path) as layout:
        positions = np.arange(EDGES)
        assert_edges_have_their_rows(layout, rows, None, positions, layout.edge_features().gather(positions))
        split = layout.artifact.split
        assert split["feature_bytes"] + split["adjacency_bytes"] <= 2048 < split["feature_bytes"] + 4 * 1024


def test_a_chain_foresees_and_places_rows_of_edges(tiering_cli, tmp_path):
    rows = write_source(tmp_path / "source")
    text = '[dataset]\npath = "source"\n[layout]\ncpu = "30%"\nssd = "ssd"\npage = 512\n'
    (tmp_path / "chain.toml").write_text(text)
    foreseen = tiering_cli("run", tmp_path / "chain.toml", "--dry-run", "--json").ok().json
    steps = {step["name"]: step for plan in foreseen["stages"] for step in plan["steps"]}
    tiering_cli("run", tmp_path / "chain.toml").ok()
    with tiering.open(tmp_path / "layout") as layout:
        assert steps["rows of node:to:node"]["amount"] == layout.edge_features().shape[0] == len(rows)
        assert layout.edge_feature_relations
    (tmp_path / "chain.toml").write_text(text + 'edge_features = "none"\n')
    foreseen = tiering_cli("run", tmp_path / "chain.toml", "--dry-run", "--json").ok().json
    assert "rows of node:to:node" not in str(foreseen) and "rows of node" in str(foreseen)
