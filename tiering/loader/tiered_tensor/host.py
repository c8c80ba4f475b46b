"""A tiered tensor whose rows arrive in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from tiering import native
from tiering.errors import BudgetError, InputError
from tiering.loader.tables.gather import HostRows, as_ids
from tiering.loader.tiered_tensor.source import Ids, SourceTensor, TensorPlacement
from tiering.memory import AUTO_SHARE, available_memory
from tiering.units import format_bytes, parse_size

if TYPE_CHECKING:
    import numpy as np
    import torch

WHAT = "tiered tensor"  # name in messages


class HostTensorRows(HostRows):
    """Rows of a tensor by position: copies, if the tensor is mapped from a disk, and the tensor itself."""

    def __init__(self, placement: TensorPlacement, threads: int) -> None:
        source, entry = placement.source, placement.entry()
        copies = copy_to_memory(source, placement.rows["cpu"], threads, 8 * source.num_rows * placement.needs_table)
        cpu, ssd = (copies, placement.rest) if source.on_disk else (placement.rest, None)
        ends = [end for _, end in entry.ranges.values()]
        super().__init__(WHAT, entry, native.TieredTable(source.row_bytes, ends, None, [], cpu, None, ssd=ssd), threads)
        self._what, self._file = WHAT, source.file

    def ids_on_device(self, ids: Any) -> torch.Tensor:
        """Return ids in host memory: int64, shape (n,)."""
        import torch

        return torch.from_numpy(as_ids(ids).copy())  # what is checked is what is used, whatever others write to `ids`

    def take(self, positions: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Return the rows at `positions`, as bytes."""
        return self.gather(positions, out)

    def _place(self, tier: str) -> str:
        return f"{self._file} (mapped)" if tier == "ssd" and self._file is not None else "host memory"


def count_rows(size: str | int, what: str, source: SourceTensor) -> int:
    """Return how many rows a size, or a percentage of the tensor, has room for; ``auto`` of ``cpu``: free memory."""
    parsed, row_bytes = parse_size(size, what), source.row_bytes
    if parsed.auto and what == "cpu":
        room = int(AUTO_SHARE * available_memory()) - 8 * source.num_rows  # for a table of positions
        return max(0, min(source.num_rows, room // row_bytes))
    if parsed.auto:
        raise InputError(f"{what}: expected a size such as 2GiB, or a share of the tensor such as 25%, found 'auto'")
    nbytes = parsed.of(source.num_rows * row_bytes)
    if 0 < nbytes < row_bytes <= source.num_rows * row_bytes:
        raise InputError(f"{what}: expected room for a row at least ({row_bytes} bytes), found {size!r}")
    return min(source.num_rows, nbytes // row_bytes)


def copy_to_memory(source: SourceTensor, ids: Ids, threads: int, table_bytes: int = 0) -> npt.NDArray[np.uint8]:
    """Return copies of rows; `BudgetError` unless these and a table of positions fit the memory that is free."""
    needed, free = ids.size * source.row_bytes + table_bytes, available_memory()
    if ids.size and needed > free:
        raise BudgetError(
            f"cpu: copies of rows and the table of positions need {format_bytes(needed)}, and {format_bytes(free)} "
            "of memory are free; give a smaller cpu, or 'auto'"
        )
    return source.copy_rows(ids, threads)
