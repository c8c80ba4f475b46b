"""Modules of PyG, DGL and torch that blocks of one layer cannot serve, by name."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from tiering.errors import InputError

_SEVERAL_STEPS = (
    "APPNP", "APPNPConv", "ARMAConv", "AntiSymmetricConv", "ChebConv", "DNAConv", "GatedGraphConv", "HypergraphConv",
    "MixHopConv", "PANConv", "SGConv", "SSGConv", "TAGConv", "TWIRLSConv",
)  # fmt: skip
_WHOLE_GRAPH = ("DirGNNConv", "DynamicEdgeConv", "GPSConv", "GravNetConv", "XConv", "EdgeWeightNorm")
_LISTS = ("GRUAggregation", "LSTMAggregation", "MedianAggregation", "QuantileAggregation")
_NORMS = ("GraphNorm", "GraphSizeNorm", "MeanSubtractionNorm", "PairNorm")
_STATISTICS = ("_BatchNorm", "HeteroBatchNorm", "InstanceNorm")  # the last of PyG alone: torch's is of single rows
_ROW_NORMS = "retrain with a norm of single rows or of running statistics: LayerNorm(mode='node'), BatchNorm"


def unsupported_reason(module: Any) -> str:
    """Return why a module computes other rows over blocks than in one forward, and the remedy; empty if it does not."""
    classes = [
        kind for kind in type(module).__mro__ if kind.__module__.split(".")[0] in ("torch_geometric", "dgl", "torch")
    ]
    names, about = {kind.__name__ for kind in classes}, vars(module)
    if about.get("cached") or about.get("_cached"):
        return "keeps the edges of the first block that it sees (cached=True); set cached=False"
    if names.intersection(_SEVERAL_STEPS):
        return "takes several steps in one layer, but a block has the edges of one step; make each step a layer"
    if names.intersection(_WHOLE_GRAPH) or about.get("flow") == "target_to_source":
        return "needs more than the in-edges of a block's nodes; compute it in memory"
    if "GraphConv" in names and about.get("_norm") in ("both", "left"):
        return (
            f"takes out-degrees from the block (norm={about['_norm']!r}); give it to `dgl_inference` in a list of "
            "convolutions, or use norm='right'"
        )
    by_degrees = any(hasattr(sys.modules.get(kind.__module__), "gcn_norm") for kind in classes)
    if by_degrees and about.get("normalize", "symnorm" in about.get("aggregators", ())):
        return (
            "takes degrees of sources from the block; give a GCN to `pyg_inference`, or import normalized weights as "
            "edge data, and call it with normalize=False and `block.edge_weight`"
        )
    if names.intersection(_LISTS):
        return "needs more of a block than one node's in-list; aggregate by mean, max, sum, std or softmax"
    if names.intersection(_NORMS) or ("LayerNorm" in names and about.get("mode") == "graph"):
        return f"normalizes over all nodes, but a block has only some of them; {_ROW_NORMS}"
    if names.intersection(_STATISTICS) and getattr(module, "running_mean", None) is None:
        return f"has no running statistics, and would use a block's statistics; {_ROW_NORMS}"
    return ""


def refuse_unsupported(where: str, modules: Iterable[tuple[str, Any]]) -> None:
    """Raise `InputError` for the first module, by its name, that blocks cannot serve."""
    for name, module in modules:
        if reason := unsupported_reason(module):
            raise InputError(f"{where}{name or 'the module'} ({type(module).__name__}) {reason}")
