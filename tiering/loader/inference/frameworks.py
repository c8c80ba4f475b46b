"""Layers of models of PyG and DGL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tiering.errors import InputError
from tiering.loader.inference.blocks import InferenceBlock
from tiering.loader.inference.layers import Layer


def pyg_layers(model: Any) -> list[Layer]:
    """Return the layers of a ``torch_geometric.nn`` ``BasicGNN`` (``GraphSAGE``, ``GAT``, ``GCN``...)."""
    if not hasattr(model, "inference_per_layer"):
        raise InputError(
            f"model: expected a BasicGNN of PyG such as GraphSAGE, found {type(model).__name__}; for others give "
            "`layout.inference` a function for each layer"
        )
    if getattr(model, "jk_mode", None) not in (None, "last"):
        raise InputError(f"model: jumping knowledge: expected none or 'last', found {model.jk_mode!r}")
    return [Layer(_pyg_layer(model, number)) for number in range(model.num_layers)]


def _pyg_layer(model: Any, number: int) -> Callable[[InferenceBlock, Any], Any]:
    return lambda block, x: model.inference_per_layer(number, x, block.edge_index, block.num_dst)


def dgl_layers(modules: Sequence[Any], activation: Callable[[Any], Any] | None = None) -> list[Layer]:
    """Return layers of DGL's convolutions, with an activation between them (``torch.relu`` by default)."""
    import torch

    act = activation or torch.relu
    last = len(modules) - 1
    return [Layer(_dgl_layer(module, act if k < last else (lambda rows: rows))) for k, module in enumerate(modules)]


def _dgl_layer(module: Any, activation: Callable[[Any], Any]) -> Callable[[InferenceBlock, Any], Any]:
    def layer(block: InferenceBlock, x: Any) -> Any:
        import dgl

        if not isinstance(x, dict):
            edges = dgl.create_block((block.edge_index[0], block.edge_index[1]), len(x), block.num_dst)
            return activation(module(edges, (x, x[: block.num_dst])).flatten(1))
        counts = {t: len(ids) for t, ids in block.nodes.items()}
        ends = {t: block.num_dst if t == block.node_type else 0 for t in counts}
        edges = dgl.create_block({r: (e[0], e[1]) for r, e in block.edges.items()}, counts, ends)
        rows = module(edges, (x, {t: v[: ends[t]] for t, v in x.items()})).get(block.node_type)
        return None if rows is None else activation(rows.flatten(1))

    return layer
