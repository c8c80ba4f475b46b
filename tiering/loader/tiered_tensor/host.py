"""A tiered tensor whose rows arrive in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import BudgetError, InputError
from tiering.loader.tables.gather import HostRows, as_ids
from tiering.loader.tables.resident import anonymous
from tiering.loader.tiered_tensor.source import SourceTensor, TensorPlacement, place_rows
from tiering.memory import AUTO_SHARE, available_memory
from tiering.units import format_bytes, parse_size

if TYPE_CHECKING:
    import torch

WHAT = "tiered tensor"  # name in messages


class HostTensorRows(HostRows):
    """Rows of a tensor by position: copies, if the tensor is mapped from a disk, and the tensor itself."""

    def __init__(
        self, source: SourceTensor, placement: TensorPlacement, copies: npt.NDArray[np.uint8], threads: int
    ) -> None:
        entry = placement.entry(source.row_bytes, on_disk=source.on_disk)
        ends = [end for _, end in entry.ranges.values()]
        itself = source.data[placement.skipped * source.row_bytes :]
        cpu, ssd = (copies, itself) if source.on_disk else (itself, None)
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


def open_on_host(
    source: SourceTensor, cpu: str | int, scores: npt.NDArray[np.float64] | None, threads: int
) -> tuple[TensorPlacement, HostTensorRows, torch.Tensor | None]:
    """Copy the hottest rows of a tensor on disk to memory; returns placement, rows and table of positions."""
    import torch

    count = count_cpu_rows(cpu, source) if source.on_disk else 0
    placement, rows = place_rows(source.num_rows, (0, 0, count), scores, threads)
    nbytes = placement.copied * source.row_bytes
    if nbytes:
        table_bytes = source.num_rows * placement.table_dtype.itemsize if placement.needs_table else 0
        require_memory(nbytes + table_bytes)
    copies = anonymous(nbytes)  # forked children read the same pages, because nobody writes to them again
    if nbytes:
        source.copy_rows(rows["cpu"], copies.reshape(-1, source.row_bytes), threads)
    table = torch.from_numpy(placement.table(rows)) if placement.needs_table else None
    return placement, HostTensorRows(source, placement, copies, threads), table


def count_rows(size: str | int, what: str, source: SourceTensor) -> int:
    """Return how many rows a size, or a percentage of the tensor, has room for."""
    parsed, row_bytes = parse_size(size, what), source.row_bytes
    if parsed.auto:
        raise InputError(f"{what}: expected a size such as 2GiB, or a share of the tensor such as 25%, found 'auto'")
    nbytes = parsed.of(source.num_rows * row_bytes)
    if 0 < nbytes < row_bytes <= source.num_rows * row_bytes:
        raise InputError(f"{what}: expected room for a row at least ({row_bytes} bytes), found {size!r}")
    return min(source.num_rows, nbytes // row_bytes)


def count_cpu_rows(size: str | int, source: SourceTensor) -> int:
    """Return how many rows of a tensor on disk to copy into memory; ``auto``: those that most free memory holds."""
    if not parse_size(size, "cpu").auto:
        return count_rows(size, "cpu", source)
    room = int(AUTO_SHARE * available_memory()) - 8 * source.num_rows  # for a table of positions
    return max(0, min(source.num_rows, room // source.row_bytes))


def require_memory(nbytes: int) -> None:
    """Raise `BudgetError` unless so much host memory is free."""
    free = available_memory()
    if nbytes > free:
        raise BudgetError(
            f"cpu: copies of rows and the table of positions need {format_bytes(nbytes)}, and {format_bytes(free)} "
            "of memory are free; give a smaller cpu, or 'auto'"
        )
