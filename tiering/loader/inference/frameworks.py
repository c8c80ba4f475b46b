"""Layers of models of PyG and DGL: with edge data, and with degrees of the whole graph where convolutions need them."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tiering.artifacts.manifest import Relation
from tiering.errors import InputError
from tiering.formats.features import EDGE_FEATURES
from tiering.formats.graph import Graph
from tiering.loader.inference.blocks import InferenceBlock
from tiering.loader.inference.degrees import Degrees
from tiering.loader.inference.layers import Layer
from tiering.loader.inference.supported import refuse_unsupported

_DGL_NAMES = {"edge_weight": "weight", **dict.fromkeys(("edge_feat", "edge_feats", "efeat", "efeats"), EDGE_FEATURES)}
"""Edge data by the names of arguments of DGL's convolutions."""
_BOTH = -0.5  # power of the degrees of both ends, as GCN uses it; -1: of the source's degree alone


def pyg_layers(model: Any, graph: Graph, edge_data: bool = True) -> list[Layer]:
    """Return the layers of a ``torch_geometric.nn`` ``BasicGNN`` (``GraphSAGE``, ``GAT``, ``GCN``...)."""
    if not hasattr(model, "inference_per_layer"):
        raise InputError(
            f"model: expected a BasicGNN of PyG such as GraphSAGE, found {type(model).__name__}; for other models "
            "give `layout.inference` a function per layer"
        )
    if getattr(model, "jk_mode", None) not in (None, "last"):
        raise InputError(f"model: jumping knowledge: expected none or 'last', found {model.jk_mode!r}")
    if len(graph.relations) != 1:
        raise InputError(
            f"model: a BasicGNN uses edges of one relation, but the graph has {len(graph.relations)}; give "
            "`layout.inference` a function per layer"
        )
    data = graph.edge_data() if edge_data else {}
    weighted = model.supports_edge_weight and "weight" in data
    found = [_pyg_conv(conv, weighted) for conv in model.convs]
    called = {id(conv): other for conv, (other, _) in zip(model.convs, found, strict=True)}
    refuse_unsupported("model: ", ((name, called.get(id(m), m)) for name, m in model.named_modules()))
    layers = []
    for number, (conv, degrees) in enumerate(found):
        dim = getattr(conv, "edge_dim", None)
        if edge_data and dim is not None and EDGE_FEATURES not in data:
            raise InputError(
                f"model: convs.{number} ({type(conv).__name__}) was made for features of edges (edge_dim={dim}), "
                "but the layout has none; import a graph with edge features, or give edge_data=False if it was "
                "trained without"
            )
        features = (
            model.supports_edge_attr and EDGE_FEATURES in data and (dim is not None or not hasattr(conv, "edge_dim"))
        )
        function = _pyg_layer(model, number, conv, weighted, features, degrees)
        layers.append(Layer(function, edge_data=weighted or features, degrees=degrees))
    return layers


def _pyg_conv(conv: Any, weighted: bool) -> tuple[Any, Degrees | None]:
    """Return a convolution as it is called, and how degrees are counted if it would take them from the block."""
    from torch_geometric.nn import GCNConv, LGConv

    if type(conv).forward not in (GCNConv.forward, LGConv.forward) or not conv.normalize:
        return conv, None
    loop = None
    if getattr(conv, "add_self_loops", False):
        loop = 2.0 if weighted and conv.improved else 1.0  # without weights PyG's loops count 1 even then
    other = copy.copy(conv)
    other.normalize = False
    return other, Degrees("in", _BOTH, weighted, loop)


def _pyg_layer(
    model: Any, number: int, conv: Any, weighted: bool, features: bool, degrees: Degrees | None
) -> Callable[[InferenceBlock, Any], Any]:
    """Return ``inference_per_layer`` with edge data."""
    last = number == model.num_layers - 1
    ends = last and model.jk_mode is None
    act, norm, act_first = model.act, model.norms[number], model.act_first
    lin = model.lin if last and hasattr(model, "lin") else None

    def layer(block: InferenceBlock, x: Any) -> Any:
        edges, options = block.edge_index, dict[str, Any]()
        if weighted:
            options["edge_weight"] = block.edge_weight.to(x.dtype)
        if features:
            options["edge_attr"] = block.edge_attr.to(x.dtype)
        if degrees is not None:
            edges, options["edge_weight"] = _normalized(block, options.get("edge_weight"), degrees.loop, x.dtype)
        rows = conv(x, edges, **options)[: block.num_dst]
        if ends:
            return rows
        rows = act(rows) if act is not None and act_first else rows
        rows = norm(rows)
        rows = act(rows) if act is not None and not act_first else rows
        return rows if lin is None else lin(rows)

    return layer


def _normalized(block: InferenceBlock, weights: Any, loop: float | None, dtype: Any) -> tuple[Any, Any]:
    """Return edges and weights of ``gcn_norm``: self loops once, of the last one's weight, and factors of both ends."""
    import torch

    edges, factors = block.edge_index, block.factors.to(dtype)
    weights = torch.ones(edges.shape[1], dtype=dtype, device=edges.device) if weights is None else weights
    if loop is not None:
        own = edges[0] == edges[1]
        ends, loops = edges[1, own], torch.full((block.num_dst,), loop, dtype=dtype, device=edges.device)
        last = torch.cat([ends[1:] != ends[:-1], ends.new_ones(len(ends[:1]), dtype=torch.bool)])
        loops[ends[last]] = weights[own][last]
        nodes = torch.arange(block.num_dst, device=edges.device).expand(2, -1)
        edges, weights = torch.cat([edges[:, ~own], nodes], 1), torch.cat([weights[~own], loops])
    return edges, factors[edges[0]] * weights * factors[edges[1]]


def dgl_layers(
    modules: Sequence[Any], graph: Graph, activation: Callable[[Any], Any] | None = None, edge_data: bool = True
) -> list[Layer]:
    """Return layers of DGL's convolutions, with an activation between them (``torch.relu`` by default)."""
    import torch

    act, layers = activation or torch.relu, []
    relations = {r: tuple(graph.edge_data(r)) if edge_data else () for r in graph.relations}
    for number, module in enumerate(modules):
        called, degrees = module, None
        if type(module).__name__ == "GraphConv" and module._norm in ("left", "both") and len(relations) == 1:
            called, degrees = copy.copy(module), Degrees("out", _BOTH if module._norm == "both" else -1.0)
            called._norm = "none"
        refuse_unsupported(f"convolution {number}: ", called.named_modules())
        of_relation = getattr(module, "_get_module", lambda relation, module=module: module)
        options = {r: _dgl_options(number, of_relation(r), known) for r, known in relations.items()}
        last = number == len(modules) - 1
        function = _dgl_layer(called, None if last else act, options, None if degrees is None else degrees.power)
        layers.append(Layer(function, edge_data=any(options.values()), degrees=degrees))
    return layers


def _dgl_options(number: int, module: Any, known: Sequence[str]) -> dict[str, str]:
    """Return edge data by the arguments of a convolution that take it; refuse where it needs more than there is."""
    arguments = inspect.signature(module.forward).parameters
    taken = {argument: _DGL_NAMES[argument] for argument in arguments if argument in _DGL_NAMES}
    for argument, name in taken.items():
        if name not in known and arguments[argument].default is inspect.Parameter.empty:
            raise InputError(
                f"convolution {number}: {type(module).__name__} needs {argument}, but the layout has no edge data "
                f"{name!r}, or edge_data=False excludes it; import a graph with it"
            )
    return {argument: name for argument, name in taken.items() if name in known}


def _dgl_layer(
    module: Any, activation: Callable[[Any], Any] | None, options: dict[Relation, dict[str, str]], power: float | None
) -> Callable[[InferenceBlock, Any], Any]:
    """Return a function that calls a convolution; `power`: of degrees, by which edges are weighted instead of rows."""

    def arguments_of(block: InferenceBlock, relation: Relation, dtype: Any) -> dict[str, Any]:
        """Return the arguments of a relation's edges."""
        import torch

        values = {a: block.edge_values(relation, name).to(dtype) for a, name in options[relation].items()}
        if power is not None:
            src, dst = block.edges[relation]
            weights = block.factors.to(dtype)[src] * values.get("edge_weight", 1)
            degrees = torch.bincount(dst, minlength=block.num_dst).clamp(min=1).to(dtype)
            values["edge_weight"] = weights * degrees[dst] ** power if power == _BOTH else weights
        return values

    def layer(block: InferenceBlock, x: Any) -> Any:
        import dgl

        if not isinstance(x, dict):
            ((relation, pairs),) = block.edges.items()
            edges = dgl.create_block((pairs[0], pairs[1]), len(x), block.num_dst)
            rows = module(edges, (x, x[: block.num_dst]), **arguments_of(block, relation, x.dtype))
        else:
            counts = {t: len(ids) for t, ids in block.nodes.items()}
            ends = {t: block.num_dst if t == block.node_type else 0 for t in counts}
            edges = dgl.create_block({r: (e[0], e[1]) for r, e in block.edges.items()}, counts, ends)
            called = module
            if any(options.values()):
                called = copy.copy(module)
                called.mod_dict = {
                    r: partial(module._get_module(r), **arguments_of(block, r, x[r[0]].dtype))
                    for r in block.edges
                    if r[0] in x
                }
            rows = called(edges, (x, {t: v[: ends[t]] for t, v in x.items()})).get(block.node_type)
        rows = None if rows is None else rows.flatten(1)
        return rows if rows is None or activation is None else activation(rows)

    return layer
