"""Layers of inference: functions of blocks, checked; their parameters, and the memory that they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import xxhash

from tiering.errors import InputError, ModelError
from tiering.formats.embeddings import RowsEntry
from tiering.loader.inference.blocks import InferenceBlock
from tiering.loader.inference.degrees import Degrees
from tiering.memory import own_memory, release_unused

if TYPE_CHECKING:
    import torch

Rows = Any
"""Rows of the sources, a tensor, or tensors by type where the graph has several."""
_DEEPEST, _MOST_PARTS = 8, 10_000  # of objects in objects, and of collections, in which a function's modules are found
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
    """Neighbours of each destination: -1 all, else as many are drawn as a model was trained with."""
    neighbours: bool = True
    """Whether the function reads neighbours; else blocks have no edges."""
    edge_data: bool = True
    """Whether the function may read edge data (`InferenceBlock.edge_data`), where the graph has some."""
    degrees: Degrees | None = None
    """How degrees of the whole graph become `InferenceBlock.factors`, for graphs of one relation."""


def run_function(layer: Layer, number: int, block: InferenceBlock, x: Rows) -> torch.Tensor | None:
    """Return the rows of a block's destinations in host memory; ``None`` if the function has none for their type."""
    import torch

    where = f"layer {number}, block of {block.node_type!r} from node {int(block.nodes[block.node_type][0])} on"
    with torch.inference_mode():
        try:
            shown, x = block.padded(x)
            found = layer.function(shown, x)
        except Exception as error:
            raise ModelError(f"{where}: the function failed: {type(error).__name__}: {error}") from error
        rows = found.get(block.node_type) if isinstance(found, dict) else found
        if rows is None:
            return None
        kind = str(getattr(rows, "dtype", type(rows).__name__)).removeprefix("torch.")
        if not isinstance(rows, torch.Tensor) or rows.dim() != 2 or len(rows) != shown.num_dst or kind not in _DTYPES:
            shape = tuple(rows.shape) if isinstance(rows, torch.Tensor) else ""
            raise ModelError(
                f"{where}: expected a tensor of floats of shape ({shown.num_dst}, dim), a row for each destination, "
                f"found {kind} {shape}"
            )
        return rows[: block.num_dst].cpu().contiguous()


def check_values(rows: torch.Tensor | None, entry: RowsEntry, number: int, block: InferenceBlock) -> None:
    """Refuse rows of another form than those of the first block, and NaN."""
    expected = f"{entry.dim} x {entry.dtype}"
    found = "no rows" if rows is None else f"{rows.shape[1]} x {str(rows.dtype).removeprefix('torch.')}"
    where = f"layer {number}, {block.node_type!r}"
    if rows is None or found != expected:
        raise ModelError(f"{where}: expected {expected} as of the first block, found {found}")
    nan = rows.isnan().any(1)
    if bool(nan.any()):
        first = int(block.nodes[block.node_type][int(nan.nonzero()[0])])
        raise ModelError(f"{where}: {int(nan.sum())} rows of a block have NaN, first that of node {first} (rank)")


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


def modules_of(value: Any, name: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield modules and tensors: a value, those in a collection or an object, and those that a function refers to."""
    import torch

    seen = set() if seen is None else seen
    if id(value) in seen or name.count(".") > _DEEPEST:
        return
    seen.add(id(value))
    if isinstance(value, torch.nn.Module | torch.Tensor):
        yield name, value
        return
    parts: dict[Any, Any] = {} if isinstance(value, type | ModuleType) else dict(getattr(value, "__dict__", {}))
    if isinstance(value, dict | list | tuple) and len(value) <= _MOST_PARTS:
        parts = value if isinstance(value, dict) else dict(enumerate(value))
    elif callable(value):
        code, known = getattr(value, "__code__", None), getattr(value, "__globals__", {})
        names = [*getattr(code, "co_freevars", ()), *filter(known.__contains__, getattr(code, "co_names", ()))]
        cells = [cell.cell_contents for cell in getattr(value, "__closure__", None) or ()]
        parts |= dict(zip(names, [*cells, *(known[n] for n in names[len(cells) :])], strict=True))
        own = ("__self__", "__defaults__", "__kwdefaults__", "__wrapped__", "func", "args", "keywords")
        parts |= {attribute: getattr(value, attribute, None) for attribute in own}
    for key, part in parts.items():
        yield from modules_of(part, f"{name}.{key}".lstrip("."), seen)


def digest_layers(layers: Sequence[Any]) -> list[str]:
    """Return a digest of each layer's parameters; refuse modules in training mode."""
    import torch

    digests = []
    for number, layer in enumerate(layers):
        digest = xxhash.xxh3_128()
        for function in (layer.function, layer.before) if isinstance(layer, Layer) else (layer,):
            for name, module in modules_of(function):
                state = {"": module} if isinstance(module, torch.Tensor) else module.state_dict()
                parts = () if isinstance(module, torch.Tensor) else module.named_modules()
                training = [path or name or "the module" for path, part in parts if part.training]
                if training:
                    raise InputError(
                        f"layer {number}: {training[0]} ({type(module).__name__}) is in training mode; call its "
                        "eval() first"
                    )
                for key, value in state.items():
                    digest.update(f"{name}.{key}".encode())
                    if isinstance(value, torch.Tensor):
                        digest.update(value.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        digests.append(f"xxh3-128:{digest.hexdigest()}")
    return digests


def as_layers(layers: Sequence[Any]) -> list[Layer]:
    """Return functions and layers as layers, `Layer.before` as part of the function of the layer before.

    That of the first becomes a layer of its own.
    """
    made: list[Layer] = []
    for layer in (layer if isinstance(layer, Layer) else Layer(layer) for layer in layers):
        if layer.before is not None and made:
            made[-1] = replace(made[-1], function=_then(made[-1].function, layer.before))
        elif layer.before is not None:
            made.append(Layer(_then(lambda block, x: x, layer.before), neighbours=False))
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
