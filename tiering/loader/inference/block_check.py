"""The check that a layer's rows do not depend on other destinations: one block is computed again among others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tiering.errors import ModelError
from tiering.loader.inference.blocks import InferenceBlock

if TYPE_CHECKING:
    import torch

_ALLOWED = 1e-4  # change of a row, of its largest value
_LEAST_EDGES = 1024  # that other nodes get where a block has no more than its first destinations need


def with_other_destinations(block: InferenceBlock, x: Any) -> tuple[InferenceBlock, Any] | None:
    """Return a block of the second half of the destinations with their in-lists, among others; ``None``: has none.

    Sources of their type become destinations, whose in-lists are made of the same edges; other nodes are omitted.
    There are about as many edges as before, and no row that was not there.
    """
    import torch

    t, begin, half = block.node_type, block.num_dst // 2, -(-block.num_dst // 2)
    kept = {r: (e[1] >= begin).nonzero().squeeze(1) for r, e in block.edges.items()}
    if not any(map(len, kept.values())) and (not begin or any(e.numel() for e in block.edges.values())):
        return None
    used = {s: torch.zeros(len(ids), dtype=torch.bool, device=ids.device) for s, ids in block.nodes.items()}
    for r, places in kept.items():
        used[r[0]][block.edges[r][0, places]] = True
    used[t][begin : block.num_dst] = False
    chosen = {s: mask.nonzero().squeeze(1) for s, mask in used.items()}
    chosen[t] = torch.cat([torch.arange(begin, block.num_dst, device=chosen[t].device), chosen[t]])
    numbers = {
        s: torch.empty_like(ids).scatter(0, chosen[s], torch.arange(len(chosen[s]), device=ids.device))
        for s, ids in block.nodes.items()
    }
    more = {
        r: max(block.edges[r].shape[1] - len(p), min(len(p), _LEAST_EDGES)) if len(p) else 0 for r, p in kept.items()
    }
    others = min(len(chosen[t]) - half, max(more.values(), default=0))
    edges, order = {}, {}
    for r, places in kept.items():
        k = torch.arange(more[r] if others else 0, device=places.device)
        order[r] = torch.cat([places, places[k % max(1, len(places))]])
        src = numbers[r[0]][block.edges[r][0, order[r]]]
        dst = torch.cat([block.edges[r][1, places] - begin, half + k * others // max(1, more[r])])
        edges[r] = torch.stack([src, dst])
    positions = {r: places[order[r]] for r, places in block.positions.items()}
    nodes = {s: ids[chosen[s]] for s, ids in block.nodes.items()}
    rows = {s: part[chosen[s]] for s, part in x.items()} if isinstance(x, dict) else x[chosen[t]]
    return InferenceBlock(t, nodes, edges, half + others, positions, block.values), rows


def refuse_changed(rows: Any, again: torch.Tensor | None, number: int, block: InferenceBlock, x: Any) -> None:
    """Refuse a layer whose rows of a block's later destinations, `again`, differ from those in another block."""
    import torch

    first, inputs = block.num_dst // 2, [rows, *(x.values() if isinstance(x, dict) else [x])]
    if again is None or again.shape[1] != rows.shape[1]:
        return  # the form of the other blocks is checked, too
    allowed = max([_ALLOWED, *(8 * torch.finfo(part.dtype).eps for part in inputs if part.is_floating_point())])
    rows, again = rows[first:].double(), again[: len(rows) - first].double()
    sizes = rows.abs().masked_fill(rows.isinf(), 0).amax(1)
    limits = allowed * sizes.clamp(min=float(sizes.max()) / 100)
    change = torch.where(rows == again, 0, (rows - again).abs()).nan_to_num(torch.inf).amax(1)
    worst = int((change - limits).argmax())
    if change[worst] <= limits[worst]:
        return
    what = f"changes by {change[worst]:.3g}, its largest value is {sizes[worst]:.3g}"
    raise ModelError(
        f"layer {number}, {block.node_type!r}: rows depend on other nodes in the block: the row of node "
        f"{int(block.nodes[block.node_type][first + worst])} (rank) {what}. Likely causes are degrees of sources, a "
        "norm or attention over all rows, and random numbers. Compute each row from its own in-edges, and take "
        "weights by degrees of the whole graph from edge data (`block.edge_weight`)"
    )
