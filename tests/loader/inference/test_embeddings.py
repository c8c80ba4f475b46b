"""The embeddings artifact: rows by rank and by the ids of the source, what is printed, damage, and results refused."""

from __future__ import annotations

import shutil
import warnings

import numpy as np
import pytest
import torch
from inferred import Sage, odd_graph
from toy_datasets import tree_bytes

import tiering
from tiering.errors import CapabilityError, ExistsError, FormatError, InputError, MissingError, ModelError
from tiering.formats.embeddings import Embeddings
from tiering.loader.inference import Layer


@pytest.fixture
def made(kit, build, tmp_path):
    """A layout, and embeddings of all nodes."""
    layout = build(odd_graph(kit))
    return layout, layout.inference(Sage(12, 20, 5).layers, tmp_path / "e")


def test_rows_by_rank_and_by_the_ids_of_the_source(made, tmp_path):
    layout, embeddings = made
    rows = embeddings.numpy()
    assert rows.shape == (900, 5) and rows.dtype == np.float32 and not rows.flags.writeable
    ids = np.random.default_rng(0).integers(0, 900, 70)
    for name, form in (
        ("numpy", ids),
        ("torch", torch.from_numpy(ids)),
        ("list", ids.tolist()),
        ("int32", ids.astype(np.int32)),
    ):
        np.testing.assert_array_equal(embeddings[form], rows[ids], name)
        for gather in (embeddings.gather, embeddings.gather_numpy):
            np.testing.assert_array_equal(gather(form, original=True), rows[layout.old_to_new()[ids]], name)
    assert embeddings[np.empty(0, np.int64)].shape == (0, 5)
    for bad in ([-1], [900], [[1]], [0.5], 3):
        with pytest.raises(InputError, match=r"ids: expected whole numbers of one dimension, 0 \.\. 899"):
            embeddings.gather_numpy(bad)
    with pytest.raises(InputError, match=r"ids\[0\] is 900, outside -900\.\.899"):
        embeddings[[900]]
    with pytest.raises(MissingError, match="no node type 'author'"):
        embeddings.gather(ids, "author")
    moved = tmp_path / "moved"
    shutil.move(embeddings.path, moved)
    shutil.rmtree(layout.path)
    np.testing.assert_array_equal(tiering.open(moved)[ids], rows[ids])


def test_what_is_printed(made, tiering_cli):
    _, embeddings = made
    info = tiering_cli("info", embeddings.path).ok().out
    for words in ("Embeddings by rank", "5 x float32", "900", "17.58 KiB"):
        assert words in info
    summary = tiering_cli("info", embeddings.path, "--json").ok().json["node_types"]["node"]
    assert summary == {"rows": 900, "dim": 5, "dtype": "float32", "codec": "", "offset": 0, "row_bytes": 20}
    assert tiering_cli("check", embeddings.path, "--full").ok()


@pytest.mark.parametrize("damage", ["a bit", "cut", "gone", "another order"])
def test_damage(made, tiering_cli, damage):
    _, embeddings = made
    path = embeddings.path / "rows"
    data = bytearray(path.read_bytes())
    if damage == "a bit":
        data[5000] ^= 1
        path.write_bytes(data)
    elif damage == "cut":
        path.write_bytes(data[:-4096])
    elif damage == "gone":
        path.unlink()
    else:
        shutil.rmtree(embeddings.path / "order")
    words = "order" if damage == "another order" else "rows"
    checked = tiering_cli("check", embeddings.path, "--full")
    assert checked.code == 1 and words in checked.out.splitlines()[0] and "1 problem" in checked.out
    if damage != "a bit":
        with pytest.raises(FormatError):
            Embeddings.open(embeddings.path)


WRONG = {
    "one row": (
        lambda block, x: x[:1],
        r"layer 0, block of 'node' from node 0 on: expected a tensor of floats of shape",
    ),
    "numpy": (lambda block, x: x[: block.num_dst].numpy(), "found float32"),
    "integers": (lambda block, x: x[: block.num_dst].long(), r"found int64 \(\d+, 12\)"),
    "three dimensions": (lambda block, x: x[: block.num_dst, None], r"found float32 \(\d+, 1, 12\)"),
    "no columns": (
        lambda block, x: x[: block.num_dst, :0],
        r"^layer 0, .*with at least 1 column, found float32 \(\d+, 0\)",
    ),
    "nothing": (lambda block, x: None, "returned no rows of the node types"),
    "another width": (
        lambda block, x: x[: block.num_dst, : 12 - int(block.nodes["node"][0] > 9)],
        "expected 12 x float32 as",
    ),
    "another dtype": (
        lambda block, x: x[: block.num_dst].double() if block.nodes["node"][0] > 9 else x[: block.num_dst],
        "expected 12 x float32 as in the first block, found 12 x float64",
    ),
    "NaN": (
        lambda block, x: torch.where(
            block.nodes["node"][: block.num_dst, None] % 100 == 77, torch.nan, x[: block.num_dst]
        ),
        r"1 rows of a block have NaN, the first: node 77 \(rank\)",
    ),
    "an error": (lambda block, x: x[0] / block.missing, "the function failed: AttributeError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_results_that_are_refused(kit, build, tmp_path, case):
    layout, (function, words) = build(odd_graph(kit)), WRONG[case]
    with pytest.raises(ModelError, match=words):
        layout.inference([function], tmp_path / "e", edges=300)
    assert not (tmp_path / "e").exists()


def test_what_is_refused_before_it_begins(kit, build, tmp_path):
    layout, model = build(odd_graph(kit)), torch.nn.Linear(12, 3)

    def layer(block, x):
        return model(x[: block.num_dst])

    with pytest.raises(InputError, match=r"layer 0: model \(Linear\) is in training mode; call its eval\(\) first"):
        layout.inference([layer], tmp_path / "e")
    model.eval()
    for options, words in (
        ({"dtype": "int8"}, "dtype: expected float32, float16, bfloat16, found 'int8'"),
        ({"edge": 3}, "edge"),
        ({"nodes": [900]}, "nodes"),
        ({"nodes": []}, "nodes: the set is empty; give at least one node"),
        ({"nodes": np.zeros(900, bool)}, "nodes: the set is empty"),
        ({"nodes": ("author", [1])}, "author"),
        *(({"edges": few}, "edges: expected auto or a whole number of at least 1") for few in (0, 1.5, "many", True)),
        ({"memory": "much"}, "memory"),
        ({"device": "gpu"}, "device: expected cpu, cuda or cuda:N"),
    ):
        with pytest.raises((InputError, MissingError, CapabilityError, TypeError), match=words):
            layout.inference([layer], tmp_path / "e", **options)
    for layers, words in (
        ([], "layers: expected at least one function"),
        (layer, r"layers: expected a list with one function per layer, found function; write \[function\]"),
        (Layer(layer), "found Layer; write"),
        ([layer, 3], "found 3"),
    ):
        with pytest.raises(InputError, match=words):
            layout.inference(layers, tmp_path / "e")
    data = odd_graph(kit)
    data.nodes["node"] = kit.Nodes(900)
    with pytest.raises(InputError, match="inference starts from features, but the layout has none"):
        build(data).inference([layer], tmp_path / "e")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "mine").write_text("kept")
    for force in (False, True):
        with pytest.raises(ExistsError):
            layout.inference([lambda block, x: pytest.fail("it is tried")], tmp_path / "e", force=force)
    assert (tmp_path / "e" / "mine").read_text() == "kept" and len(list(tmp_path.glob(".e*"))) == 0


@pytest.mark.parametrize(("made", "dtype", "value", "below"), [
    ("float32", "float16", 65520.0, 65504.0), ("float32", "bfloat16", -3.4e38, -3.3e38),
    ("float64", "float32", 1e39, 3e38), ("float64", "float16", 1e300, 6e4), ("float16", "bfloat16", 65504.0, 65280.0),
])  # fmt: skip
def test_numbers_that_a_table_cannot_hold(kit, build, tmp_path, made, dtype, value, below):
    """The value just below them, and infinity that a function returns, are stored."""
    layout, kind, name = build(odd_graph(kit)), getattr(torch, made), getattr(torch, dtype)

    def layer(least):
        def function(block, x):
            rows = torch.zeros(block.num_dst, 3, dtype=kind)
            rows[block.nodes["node"][: block.num_dst] == 377, 1] = least
            return rows

        return function

    words = rf"layer 0, 'node': node 377 \(rank\), column 1 is {value:g}, which {dtype} cannot represent; omit dtype to"
    with pytest.raises(ModelError, match=words.replace("+", r"\+")):
        layout.inference([layer(value)], tmp_path / "e", edges=300, dtype=name)
    for number, held in enumerate((below, torch.inf)):
        found = layout.inference([layer(held)], tmp_path / str(number), edges=300, dtype=name)
        decoded = torch.from_numpy(found.numpy().copy().view(np.int16 if name.itemsize == 2 else np.int32)).view(name)
        assert (
            decoded[377, 1].double() == torch.tensor(held, dtype=kind).to(name).double()
            and found.entry().codec == dtype
        )


def test_layers_of_a_generator_and_a_dtype_of_torch(kit, build, tmp_path):
    layout, model = build(odd_graph(kit)), Sage(12, 9, 4)
    layout.inference(model.layers, tmp_path / "a", dtype="float16")
    layout.inference((layer for layer in model.layers), tmp_path / "b", dtype=torch.float16)
    assert tree_bytes(tmp_path / "a") == tree_bytes(tmp_path / "b")


def test_sparse_tensors_in_a_closure(kit, build, tmp_path):
    layout = build(odd_graph(kit))
    weight = torch.eye(12)[:, :5]
    expected = layout.inference([lambda block, x: x[: block.num_dst] @ weight], tmp_path / "dense").numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, sparse in enumerate((weight.to_sparse(), weight.to_sparse_csr())):
            function = lambda block, x, sparse=sparse: x[: block.num_dst] @ sparse  # noqa: E731
            np.testing.assert_array_equal(layout.inference([function], tmp_path / str(number)).numpy(), expected)


def test_ranks_of_some_nodes_must_rise(kit, build, tmp_path, tiering_cli):
    layout, model = build(odd_graph(kit)), Sage(12, 9, 4)
    layout.inference(model.layers, tmp_path / "e", nodes=np.arange(20))
    file = tmp_path / "e/nodes/node"
    ranks = np.fromfile(file, np.int64)
    ranks[:2] = ranks[1::-1]
    ranks.tofile(file)
    assert "nodes/node: the ranks do not increase" in tiering_cli("check", tmp_path / "e").out
