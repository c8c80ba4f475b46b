"""Rows as tables and loaders deliver them in every tier and dtype: bit for bit those of the reference. Coded ones, and
tables of 16 bits without a codec, whose rows have no padding.
"""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from child_process import in_child
from coded_layouts import EDGES, as_dtype, as_float32, coded_toy, decoded_rows, stored_rows
from toy_datasets import Toy, chain

import tiering
from tiering.artifacts.manifest import relation_key
from tiering.codecs import DELIVERED
from tiering.errors import CapabilityError, FormatError, InputError
from tiering.formats.dataset import Dataset, EdgeData, NodeData
from tiering.formats.features import FeatureTable
from tiering.loader.memory import decide_memory
from tiering.loader.tables import ranks

DTYPES = ["int8", "float8_e4m3", ["bfloat16", "paper=int8"], ["float16", "author=float32", "venue=float32"]]
HALVES = ["float16", "bfloat16"]
TIERS = {"gpu": "11%", "peer": "2x7%", "cpu": "20%"}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("coded")
    toy = coded_toy(folder / "data", 300)
    return toy, chain(toy, folder)[2], folder


def halves(folder, dtype):
    """Tables of odd and even numbers of columns, of a type each, whose nodes papers of seven columns aggregate."""
    random, rows, toy = np.random.default_rng(3), 300, Toy(Dataset("halves", "npy", {}, []))
    folder.mkdir()
    for dim in (1, 2, 3, 7, 128, 129):
        name = "paper" if dim == 7 else f"t{dim}"
        table = as_dtype(random.normal(size=(rows, dim)).astype(np.float32), dtype)
        (folder / name).write_bytes(table.tobytes())
        nodes = NodeData(rows, features=FeatureTable(folder / name, rows, dim, dtype))
        nodes.splits = {"train": random.permutation(rows)[:150]}
        toy.dataset.nodes[name], toy.tables[name] = nodes, table
        src, dst = random.integers(0, rows, (2, 900))
        toy.dataset.edges.append(EdgeData((name, f"of{dim}", "paper"), src, dst, data={}, where="toy.npy"))
    return toy, chain(toy, folder)[2]


@pytest.fixture(scope="module")
def written(made):
    """A toy, and where its layout with rows in all tiers lies; `spec` is a dtype of codecs, or of halves."""
    toy, reordered, folder = made
    found = {}

    def write(spec, without_codec):
        if (key := str((spec, without_codec))) not in found:
            out = folder / f"layout-{len(found)}"
            mine, source = halves(out.with_suffix(".data"), spec) if without_codec else (toy, reordered)
            disks = [out.with_suffix(f".ssd{k}") for k in range(2)]
            dtype = "auto" if without_codec else spec
            layout = tiering.write_layout(source, out=out, ssd=disks, dtype=dtype, **TIERS)
            assert any(layout.artifact.type_layout(name).codec for name in layout.feature_types) != without_codec
            layout.close()
            found[key] = mine, out
        return found[key]

    return write


@pytest.fixture
def opened(request, written, gpu):
    """A toy and its layout, open for one test."""
    toy, path = written(*request.param)
    with tiering.open(path) as layout:
        yield toy, layout


CODED = [(dtype, False) for dtype in DTYPES]
coded = pytest.mark.parametrize("opened", CODED, indirect=True, ids=str)
coded_or_not = pytest.mark.parametrize("opened", [*CODED, *((dtype, True) for dtype in HALVES)], indirect=True, ids=str)


def tables_of(layout):
    """Names of all tables, of nodes and of edges."""
    return [*layout.feature_types, *map(relation_key, layout.edge_feature_relations)]


def expected(toy, layout, name, dtype=None):
    """All rows of a table by rank, as bits of the delivered dtype, and that dtype."""
    if name == EDGES:
        source, given = np.asarray(layout.graph.edge_feature_table(layout.graph.relation(EDGES)).open()), "float32"
    else:
        source = toy.tables[name][np.asarray(layout.new_to_old(name))]
        given = layout.artifact.type_layout(name).dtype
    dtype = dtype or (given if given in DELIVERED else "float32")
    entry = layout.artifact.type_layout(name)
    rows = decoded_rows(layout.path, name, source) if entry.codec else as_float32(source, given)
    return as_dtype(rows, dtype), getattr(torch, dtype)


def bits(tensor):
    """A tensor as numpy stores it."""
    return (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).cpu().numpy()


def same(tensor, rows, dtype):
    assert tensor.dtype == dtype
    assert bits(tensor).tobytes() == np.ascontiguousarray(rows).tobytes()


@pytest.mark.parametrize("dtype", [None, *DELIVERED])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@coded_or_not
def test_every_table_delivers_the_references_rows(opened, device, dtype):
    (toy, layout), tiers = opened, set()
    for name in tables_of(layout):
        features = layout.edge_features if name == EDGES else partial(layout.features, name)
        if dtype == "float16" and float(np.abs(expected(toy, layout, name, "float32")[0]).max()) > 65504:
            with pytest.raises(InputError, match=r"float16 ends at 65504|can be delivered as"):
                features(device=device, dtype=dtype)
            continue
        rows, kind = expected(toy, layout, name, dtype)
        ids = np.random.default_rng(1).integers(0, len(rows), 700)
        with features(device=device, dtype=kind if dtype else None) as table:
            for some in (ids, ids[:1], ids[:0]):
                same(table.gather(torch.from_numpy(some)), rows[some], kind)
            out = torch.empty((len(ids), rows.shape[1]), dtype=kind)
            if device == "cpu":
                assert table.gather(ids, out=out) is out
                same(out, rows[ids], kind)
                assert table.gather_numpy(ids).tobytes() == rows[ids].tobytes()
                same(pickle.loads(pickle.dumps(table)).gather(ids), rows[ids], kind)
            assert table.row_bytes == layout.artifact.type_layout(name).row_bytes
            assert table.out_bytes == rows.shape[1] * kind.itemsize
            for tier, served in table.counters.tiers.items():
                assert served.bytes == served.rows * table.row_bytes
                if served.rows and (rows.shape[1] % 2 or toy.dataset.name != "halves"):
                    tiers.add(tier)
    assert tiers == {"gpu", "peer", "cpu", "ssd"}


@coded
def test_stored_rows_are_delivered_when_asked(opened):
    toy, layout = opened
    for name in layout.feature_types:
        source = toy.tables[name][np.asarray(layout.new_to_old(name))]
        ids = np.arange(len(source))[::-3]
        found = layout.features(name).gather(ids, decoded=False)
        stored = stored_rows(layout.path, name, source) if layout.artifact.type_layout(name).codec else source
        assert found.dtype == torch.uint8 and found.shape == (len(ids), layout.features(name).row_bytes)
        assert found.numpy().tobytes() == np.ascontiguousarray(stored[ids]).tobytes()


@pytest.mark.parametrize("options", [
    {}, {"dtype": "float32"}, {"dtype": "bfloat16"}, {"memory": "tiers"}, {"memory": "tiers", "dtype": "float32"},
    {"features": "memory"}, {"memory": "2GiB", "dtype": "bfloat16"},
])  # fmt: skip
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@coded_or_not
def test_batches_have_the_references_rows(opened, monkeypatch, device, options):
    """Also where rows come by slots, in several parts of a batch."""
    toy, layout = opened
    if "memory" not in options and "features" not in options:
        of_slots = lambda *of: replace(decide_memory(*of), preload=False)  # noqa: E731
        monkeypatch.setattr("tiering.loader.loader.decide_memory", of_slots)
        few = lambda tables, nbytes, sizes: [(size, 20) for size in sizes]  # noqa: E731
        monkeypatch.setattr("tiering.readahead.memory.divide_slots", few)
    every = {name: expected(toy, layout, name, options.get("dtype")) for name in tables_of(layout)}
    chosen = {"batch_size": 50, "fanouts": [4, 4], "node_type": "paper", "device": device}
    chosen["edge_features"] = EDGES in every
    batches = list(layout.loader("train", **chosen, edge_positions=True, **options))
    assert len(batches) > 2
    for batch in batches:
        assert set(batch.features) == set(layout.feature_types)
        for name, rows in batch.features.items():
            same(rows, every[name][0][bits(batch.nodes[name])], every[name][1])
        for places, rows in zip(batch.positions, batch.edge_features, strict=EDGES in every):
            for relation, found in rows.items():
                same(found, every[EDGES][0][bits(places[relation])], every[EDGES][1])


@coded
def test_dtypes_that_cannot_be_delivered_are_refused(opened):
    _, layout = opened
    with pytest.raises(
        InputError, match=r"'author': .* delivered as (float32, float16, bfloat16|they are), found 'int8'"
    ):
        layout.features("author", dtype="int8")
    rows = SimpleNamespace(gather=None)
    with pytest.raises(InputError, match=r"rows of your own tables are not converted, found 'float16'; omit dtype"):
        layout.loader("train", node_type="paper", features={"paper": rows}, dtype=torch.float16)
    with pytest.raises(CapabilityError, match=r"'author': decoded=False: .* only to device='cpu'"):
        layout.features("author", device="cuda").gather([0], decoded=False)


def test_a_type_that_is_not_delivered_so_is_refused_before_any_is_loaded(made, tmp_path, monkeypatch):
    layout = tiering.write_layout(
        made[1], out=tmp_path / "mixed", ssd=[tmp_path / "d"], **TIERS, dtype=["int8", "venue=float32"]
    )
    monkeypatch.setattr(ranks, "load_rows", lambda *_: pytest.fail("rows were loaded"))
    for method, options in (("loader", {}), ("pyg_loader", {}), ("loader", {"features": "memory", "dtype": "float64"})):
        with pytest.raises(InputError, match=r"node type '\w+': dtype: .* rows .*delivered as .*, found 'float64'"):
            getattr(layout, method)("train", node_type="paper", **{"dtype": torch.float64, **options})


def test_large_numbers_are_not_delivered_as_float16(tmp_path):
    toy = coded_toy(tmp_path / "data", 50)
    toy.tables["author"][:] *= 1e6
    (tmp_path / "data/author").write_bytes(toy.tables["author"].tobytes())
    layout = tiering.write_layout(chain(toy, tmp_path)[2], out=tmp_path / "l", dtype="int8")
    with pytest.raises(InputError, match="but float16 ends at 65504; deliver them as float32 or bfloat16"):
        layout.features("author", dtype="float16")
    with pytest.raises(InputError, match="float16 ends at 65504"):
        layout.loader("train", node_type="paper", dtype="float16")
    assert layout.features("author", dtype="bfloat16").gather([0]).dtype == torch.bfloat16


def test_integers_without_a_codec_are_delivered_as_they_are(made, tmp_path):
    toy, reordered, _ = made
    layout = tiering.write_layout(reordered, out=tmp_path / "plain", dtype="auto")
    same(layout.features("venue").gather([3]), toy.tables["venue"][[layout.new_to_old("venue")[3]]], torch.int32)
    with pytest.raises(
        InputError, match=r"'venue': dtype: rows of 5 x int32 can be delivered as int32, found 'float16'"
    ):
        layout.features("venue", dtype="float16")


@pytest.mark.parametrize("place", ["codecs/author", "ssd"])
def test_damage_is_noticed_before_rows_are_used(made, tmp_path, place):
    _, reordered, _ = made
    layout = tiering.write_layout(reordered, out=tmp_path / "l", cpu=0, ssd=[tmp_path / "disk"], dtype="int8")
    file = layout.artifact.images[0] if place == "ssd" else layout.path / place
    layout.close()
    data = bytearray(file.read_bytes())
    data[3] ^= 0x55
    file.write_bytes(bytes(data))
    with (
        pytest.raises(FormatError, match=r"damaged|no int8 parameters|is not"),
        tiering.open(tmp_path / "l") as damaged,
    ):
        for name in damaged.feature_types:
            damaged.features(name, verify=True).gather(np.arange(10))


@coded
def test_a_gpu_that_reads_drives_refuses_rows_to_be_decoded(opened):
    _, layout = opened
    for name in layout.feature_types:
        entry = layout.artifact.type_layout(name)
        if entry.rows("ssd") and entry.codec in ("int8", "float8_e4m3", "bfloat16"):
            with pytest.raises(CapabilityError, match=r"engine='bam'.* are stored as .*; make the layout with .*dtype"):
                layout.features(name, device="cuda", engine="bam", drives=["/dev/one", "/dev/two"])


@coded
def test_a_table_of_a_dtype_is_opened_once_and_forks_go_on_with_it(opened):
    toy, layout = opened
    table = layout.features("paper", dtype="bfloat16")
    assert layout.features("paper", dtype=torch.bfloat16) is table is not layout.features("paper")
    assert layout.features("paper", dtype=np.float32) is layout.features("paper", dtype="float32")
    entry = layout.artifact.type_layout("paper")
    assert f"bfloat16, stored as {entry.codec or entry.dtype}: gpu" in repr(table)
    rows, _ = expected(toy, layout, "paper", "bfloat16")
    assert in_child(lambda: bits(table.gather(np.arange(len(rows)))).tobytes()) == rows.tobytes()


def test_a_default_that_a_codec_exceeds_is_float32(tmp_path):
    """A source that ends where float16 does, whose last step decodes to a little more."""
    toy = coded_toy(tmp_path / "data", 50)
    table = toy.tables["paper"]
    table[:2, 2], table[2:, 2] = (65504, -65472), np.linspace(-6e4, 6e4, len(table) - 2)
    (tmp_path / "data/paper").write_bytes(table.tobytes())
    layout = tiering.write_layout(chain(toy, tmp_path)[2], out=tmp_path / "l", dtype="int8")
    assert layout.artifact.codec("paper").largest > 65504
    rows, kind = expected(toy, layout, "paper", "float32")
    same(layout.features("paper").gather(np.arange(len(rows))), rows, kind)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
@coded
def test_frameworks_have_the_references_rows(opened, dtype):
    toy, layout = opened
    chosen = {"batch_size": 50, "dtype": dtype, "seed": 1}
    every = {name: expected(toy, layout, name, dtype) for name in layout.feature_types}

    def check(name, ids, found):
        rows, kind = every[name]
        same(found, rows[np.asarray(layout.old_to_new(name))[ids.numpy()]], kind)

    nodes = next(iter(layout.pyg_loader("train", [4, 4], node_type="paper", **chosen)))
    links = next(iter(layout.pyg_link_loader([4], edge_label_index=("paper", "cites", "paper"), **chosen)))
    for name in layout.feature_types:
        for batch in (nodes, links):
            check(name, batch[name].n_id, batch[name].x)
    store, _ = layout.pyg_stores(dtype=dtype)
    ids = torch.tensor([5, 0, 5])
    check("venue", ids, store.get_tensor(group_name="venue", attr_name="x", index=ids))
    pytest.importorskip("dgl")
    inputs, _, blocks = next(iter(layout.dgl_loader("train", [4, 4], node_type="paper", **chosen)))
    for name in layout.feature_types:
        check(name, inputs[name], blocks[0].srcnodes[name].data["feat"])
