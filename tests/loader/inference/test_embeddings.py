"""The embeddings artifact: rows by rank and by the ids of the source, what is printed, damage, and results refused."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
import torch
from inferred import Sage, odd_graph

import tiering
from tiering.errors import CapabilityError, ExistsError, FormatError, InputError, MissingError, ModelError
from tiering.formats.embeddings import Embeddings


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
        np.testing.assert_array_equal(embeddings.gather(form, original=True), rows[layout.old_to_new()[ids]], name)
    assert embeddings[np.empty(0, np.int64)].shape == (0, 5)
    for bad in ([-1], [900], [[1]], [0.5], 3):
        with pytest.raises(InputError, match=r"ids: expected whole numbers of one dimension, 0 \.\. 899"):
            embeddings[bad]
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
    "nothing": (lambda block, x: None, "returned rows of no node type"),
    "another width": (
        lambda block, x: x[: block.num_dst, : 12 - int(block.nodes["node"][0] > 9)],
        "expected 12 x float32 as",
    ),
    "another dtype": (
        lambda block, x: x[: block.num_dst].double() if block.nodes["node"][0] > 9 else x[: block.num_dst],
        "expected 12 x float32 as of the first block, found 12 x float64",
    ),
    "NaN": (
        lambda block, x: torch.where(
            block.nodes["node"][: block.num_dst, None] % 100 == 77, torch.nan, x[: block.num_dst]
        ),
        r"1 rows of a block have NaN, first that of node 77 \(rank\)",
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
        ({"nodes": ("author", [1])}, "author"),
        *(({"edges": few}, "edges: expected a whole number of at least 1") for few in (0, 1.5, "many", True)),
        ({"memory": "much"}, "memory"),
        ({"device": "gpu"}, "device: expected cpu, cuda or cuda:N"),
    ):
        with pytest.raises((InputError, MissingError, CapabilityError, TypeError), match=words):
            layout.inference([layer], tmp_path / "e", **options)
    with pytest.raises(InputError, match="layers: expected at least one function"):
        layout.inference([], tmp_path / "e")
    data = odd_graph(kit)
    data.nodes["node"] = kit.Nodes(900)
    with pytest.raises(InputError, match="inference begins with features, and the layout has none"):
        build(data).inference([layer], tmp_path / "e")
    (tmp_path / "e").mkdir()
    (tmp_path / "e" / "mine").write_text("kept")
    for force in (False, True):
        with pytest.raises(ExistsError):
            layout.inference([lambda block, x: pytest.fail("it is tried")], tmp_path / "e", force=force)
    assert (tmp_path / "e" / "mine").read_text() == "kept" and len(list(tmp_path.glob(".e*"))) == 0


def test_ranks_of_some_nodes_must_rise(kit, build, tmp_path, tiering_cli):
    layout, model = build(odd_graph(kit)), Sage(12, 9, 4)
    layout.inference(model.layers, tmp_path / "e", nodes=np.arange(20))
    file = tmp_path / "e/nodes/node"
    ranks = np.fromfile(file, np.int64)
    ranks[:2] = ranks[1::-1]
    ranks.tofile(file)
    assert "nodes/node: the ranks do not rise" in tiering_cli("check", tmp_path / "e").out
