"""Layers of inference: functions of blocks, checked, and the memory that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import InitVar, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tiering.errors import InputError, ModelError, quoted
from tiering.formats.embeddings import RowsEntry
from tiering.loader.inference.blocks import InferenceBlock
from tiering.loader.inference.degrees import Degrees
from tiering.memory import own_memory, release_unused

if TYPE_CHECKING:
    import torch

Rows = Any
"""Rows of the sources, a tensor, or tensors by type where the graph has several."""
_DTYPES = ("float32", "float16", "bfloat16", "float64")


@dataclass(frozen=True)
class Layer:
    """One layer: ``function(block, x)`` returns a row for each destination of an `InferenceBlock`.

    ``x`` are the rows of its sources, a tensor, or by type where the graph has several; of these the function may
    return the destinations' rows or a mapping that has them.
    """

    function: Callable[[InferenceBlock, Rows], Any]
    before: Callable[[torch.Tensor], torch.Tensor] | None = None
    """A function of single rows that is applied to the layer's input as that is written: what makes rows narrower
    makes the table smaller, and all reads of it."""
    fanouts: Any = -1
    """Neighbors of each destination: -1 all, else as many are sampled as a model was trained with."""
    neighbors: bool = True
    """Whether the function reads neighbors; else blocks have no edges."""
    edge_data: bool = True
    """Whether the function may read edge data (`InferenceBlock.edge_data`), where the graph has some."""
    degrees: Degrees | None = None
    """How degrees of the whole graph become `InferenceBlock.factors`, for graphs of one relation."""
    neighbours: InitVar[bool | None] = None
    """Another spelling of `neighbors`."""

    def __post_init__(self, neighbours: bool | None) -> None:
        if neighbours is not None:
            object.__setattr__(self, "neighbors", neighbours)


def run_function(layer: Layer, number: int, block: InferenceBlock, x: Rows) -> torch.Tensor | None:
    """Return the rows of a block's destinations in host memory; ``None`` if the function has none for their type."""
    import torch

    where = f"layer {number}, block of {block.node_type!r} from node {int(block.nodes[block.node_type][0])} on"
    with torch.no_grad():  # products with sparse matrices fail in inference_mode
        try:
            shown, x = block.padded(x)
            found = layer.function(shown, x)
        except Exception as error:
            raise ModelError(f"{where}: the function failed: {type(error).__name__}: {error}") from error
        rows: Any = found.get(block.node_type) if isinstance(found, dict) else found
        if rows is None:
            return None
        kind = str(getattr(rows, "dtype", type(rows).__name__)).removeprefix("torch.")
        shape = tuple(rows.shape) if isinstance(rows, torch.Tensor) else ()
        if len(shape) != 2 or shape[0] != shown.num_dst or not shape[1] or kind not in _DTYPES:
            raise ModelError(
                f"{where}: expected a tensor of floats of shape ({shown.num_dst}, dim), one row per destination, "
                f"with at least 1 column, found {kind} {shape or ''}"
            )
        kept: torch.Tensor = rows[: block.num_dst].detach().cpu().contiguous()
        return kept


def check_values(rows: torch.Tensor | None, entry: RowsEntry, number: int, block: InferenceBlock) -> None:
    """Refuse rows of another form than the first block's, NaN, and numbers that the table cannot represent."""
    import torch

    expected = f"{entry.dim} x {entry.dtype}"
    found = "no rows" if rows is None else f"{rows.shape[1]} x {str(rows.dtype).removeprefix('torch.')}"
    where = f"layer {number}, {block.node_type!r}"
    if rows is None or found != expected:
        raise ModelError(f"{where}: expected {expected} as in the first block, found {found}")
    total = rows.sum(dtype=torch.promote_types(rows.dtype, torch.float32))  # ten times as fast; finite: no NaN
    if not bool(total.isfinite()) and bool((nan := rows.isnan().any(1)).any()):
        first = int(block.nodes[block.node_type][int(nan.nonzero()[0])])
        raise ModelError(f"{where}: {int(nan.sum())} rows of a block have NaN, the first: node {first} (rank)")
    if entry.codec:
        stored = rows.float().to(getattr(torch, entry.codec)).to(rows.dtype)  # the dtype that the next layer gets
        lost = rows.isfinite() & stored.isinf()
        if bool(lost.any()):
            row, column = lost.nonzero()[0].tolist()
            raise ModelError(
                f"{where}: node {int(block.nodes[block.node_type][row])} (rank), column {column} is "
                f"{float(rows[row, column]):g}, which {entry.codec} cannot represent; omit dtype to store "
                f"{str(rows.dtype).removeprefix('torch.')}, or change the function, and give --force to start over"
            )


def measured(run: Callable[[], Any]) -> tuple[Any, int]:
    """Return the result of a call, and the memory that it took at its peak, as far as the system tells."""
    release_unused()  # else the call takes what is held unused
    before = own_memory()
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    result = run()
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak, mapped = (int(status.get(name, "0").split()[0]) << 10 for name in ("VmHWM", "RssFile"))
    return result, max(0, peak - mapped - before)


def list_layers(layers: Iterable[Any]) -> list[Any]:
    """Return a list or a generator of functions and layers as a list; refuse anything else."""
    found = list(layers) if isinstance(layers, Iterable) else [None]
    if wrong := [layer for layer in found if not isinstance(layer, Layer) and not callable(layer)]:
        what = f"{type(layers).__name__}; write [function] for a single layer" if found == [None] else quoted(wrong[0])
        raise InputError(f"layers: expected a list with one function per layer, found {what}")
    return found


def as_layers(layers: Sequence[Any]) -> list[Layer]:
    """Return functions and layers as layers, `Layer.before` as part of the function of the layer before.

    The first function becomes a separate layer.
    """
    made: list[Layer] = []
    for layer in (layer if isinstance(layer, Layer) else Layer(layer) for layer in layers):
        if layer.before is not None and made:
            made[-1] = replace(made[-1], function=_then(made[-1].function, layer.before))
        elif layer.before is not None:
            made.append(Layer(_then(lambda block, x: x, layer.before), neighbors=False))
        made.append(replace(layer, before=None))
    if not made:
        raise InputError("layers: expected at least one function, found none")
    return made


def _then(function: Callable[[InferenceBlock, Rows], Any], rows_function: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a layer's function, and then one of single rows."""

    def both(block: InferenceBlock, x: Rows) -> Any:
        found = function(block, x)
        rows = found.get(block.node_type) if isinstance(found, dict) else found
        return None if rows is None else rows_function(rows)

    return both
