"""Inference whose rows a GPU gathers: the same embeddings as on the CPU, of plain and of coded rows."""

from __future__ import annotations

import numpy as np
import pytest
from inferred import RelationalSage, Sage, digest, layout_of, odd_graph


@pytest.mark.parametrize("codec", ["", "int8", "float16"])
def test_layers_on_a_gpu(gpu, tiny_dataset, tmp_path, codec):
    """The first layer reads rows of the gpu, cpu and ssd tiers, the second those of a table on ssd."""
    model = Sage(6, 8, 3)
    with layout_of(tiny_dataset, tmp_path, gpu="20%", **({"dtype": codec} if codec else {})) as layout:
        found = [layout.inference(model.layers, tmp_path / d, device=d, edges=60) for d in ("cuda", "cpu")]
        assert digest(found[0]) == digest(found[1])
        np.testing.assert_allclose(found[0].numpy(), model.whole(layout), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [None, "bfloat16"])
def test_several_types_and_a_part_of_the_nodes(gpu, kit, build, tmp_path, dtype):
    with build(kit.hetero_graph()) as layout:
        model = RelationalSage(layout.artifact.graph.relations, {"paper": 6, "author": 5}, 9, 4)
        layers = [model.layer(0), model.layer(1)]
        options = {"edges": 300, "dtype": dtype, "nodes": ("paper", [1, 5, 190])}
        found = [layout.inference(layers, tmp_path / d, device=d, **options) for d in ("cuda", "cpu")]
    assert found[0].node_types == ["paper"] and digest(found[0]) == digest(found[1])


def test_one_type_of_a_graph_with_holes(gpu, kit, build, tmp_path):
    with build(odd_graph(kit, images=2)) as layout:
        found = [layout.inference(Sage(12, 20, 5).layers, tmp_path / d, device=d, edges=300) for d in ("cuda", "cpu")]
    assert digest(found[0]) == digest(found[1])
