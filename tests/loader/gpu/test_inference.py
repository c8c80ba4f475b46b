"""Inference whose rows a GPU gathers: the same embeddings as on the CPU, of plain and of coded rows."""

from __future__ import annotations

import numpy as np
import pytest
from inferred import RelationalSage, Sage, digest, odd_graph

import tiering


@pytest.mark.parametrize("codec", ["", "int8", "float16"])
def test_layers_on_a_gpu(gpu, tiering_cli, tiny_dataset, tmp_path, codec):
    """The first layer reads rows of the gpu, cpu and ssd tiers, the second those of a table on ssd."""
    coded = f" --dtype {codec}" if codec else ""
    for words in (
        "import {0} --out {1}/g",
        "score {1}/g --out {1}/s --method degree",
        "reorder {1}/g --scores {1}/s --out {1}/r",
        "layout {1}/r --out {1}/l --gpu 20% --cpu 20% --ssd {1}/ssd" + coded,
    ):
        tiering_cli(*words.format(tiny_dataset, tmp_path).split()).ok()
    model = Sage(6, 8, 3)
    with tiering.open(tmp_path / "l") as layout:
        found = [layout.inference(model.layers, tmp_path / d, device=d, edges=60) for d in ("cuda", "cpu")]
        assert digest(found[0]) == digest(found[1])
        np.testing.assert_allclose(found[0].numpy(), model.whole(layout), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_several_types_and_a_part_of_the_nodes(gpu, kit, build, tmp_path, dtype):
    with build(kit.hetero_graph()) as layout:
        model = RelationalSage(layout.artifact.graph.relations, {"paper": 6, "author": 5}, 9, 4)
        layers, options = (
            [model.layer(0), model.layer(1)],
            {"edges": 300, "dtype": dtype, "nodes": ("paper", [1, 5, 190])},
        )
        found = [layout.inference(layers, tmp_path / d, device=d, **options) for d in ("cuda", "cpu")]
    assert found[0].node_types == ["paper"] and digest(found[0]) == digest(found[1])


def test_one_type_of_a_graph_with_holes(gpu, kit, build, tmp_path):
    with build(odd_graph(kit, images=2)) as layout:
        found = [layout.inference(Sage(12, 20, 5).layers, tmp_path / d, device=d, edges=300) for d in ("cuda", "cpu")]
    assert digest(found[0]) == digest(found[1])
