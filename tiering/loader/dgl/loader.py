"""DGL's loader over a layout: what it is called with, in the words of a `Loader`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tiering.errors import InputError
from tiering.loader.attributes import edge_names
from tiering.loader.draws import chosen_sampler
from tiering.loader.loader import LayoutTables, Loader
from tiering.loader.options import LoaderOptions
from tiering.loader.original_ids import ranks_of
from tiering.loader.require import require_dgl


def block_loader(
    layout: LayoutTables,
    split: str | None,
    fanouts: Sequence[int | Mapping[Any, int]],
    *,
    indices: Any = None,
    replace: bool = False,
    prob: str | None = None,
    feature_name: str = "feat",
    label_name: str = "label",
    edge_attrs: Collection[str] | None = None,
    return_edge_id: bool | None = None,
    transform: Callable[[Any], Any] | None = None,
    features: Any = "tiers",
    **options: Any,
) -> Loader:
    """See `tiering.loader.frameworks.ForFrameworks.dgl_loader`."""
    require_dgl()
    from tiering.loader.dgl.batch import DglBatches

    graph = layout.artifact.graph
    if isinstance(fanouts, (str, bytes)) or not isinstance(fanouts, Sequence) or not fanouts:
        raise InputError(f"fanouts: expected one entry per layer such as [10, 10], found {fanouts!r}")
    sampler = chosen_sampler(options, replace, prob, "prob")
    if indices is not None:
        if not isinstance(indices, Mapping):
            indices = dict.fromkeys(graph.node_types, indices)
        if len(indices) != 1:
            raise InputError(
                f"indices: expected ids of one type, as {{type: ids}}, found {len(indices)}; types: "
                f"{', '.join(graph.node_types)}"
            )
        ((node_type, ids),) = indices.items()
        options |= {"node_type": node_type, "seeds": ranks_of(graph, node_type, ids, "indices")}
    options |= {"split": split, "fanouts": list(reversed(fanouts)), "frontier": "all", "sampler": sampler}
    names = tuple(edge_names(graph, edge_attrs, return_edge_id))
    return Loader(layout, LoaderOptions.of(features, options), DglBatches(names, transform, feature_name, label_name))
