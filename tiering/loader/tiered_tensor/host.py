"""Where the rows of a tiered tensor lie in host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.errors import BudgetError, InputError
from tiering.loader.tables.gather import HostRows, as_ids
from tiering.loader.tables.resident import anonymous
from tiering.loader.tiered_tensor.in_hand import TensorInHand
from tiering.loader.tiered_tensor.placement import CopiedRows, TensorPlacement
from tiering.memory import AUTO_SHARE, available_memory
from tiering.units import format_bytes, parse_size

if TYPE_CHECKING:
    import torch

WHAT = "tiered tensor"
"""Begins messages."""


class HostTensorRows(HostRows):
    """Places of a tensor, gathered from copies and from the tensor itself."""

    def __init__(
        self, tensor: TensorInHand, placement: TensorPlacement, copies: npt.NDArray[np.uint8], threads: int
    ) -> None:
        entry = placement.entry(tensor.row_bytes, on_disk=tensor.on_disk)
        ends = [entry.ranges[tier][1] for tier in ("gpu", "peer", "cpu", "ssd")]
        itself = tensor.data[placement.skipped * tensor.row_bytes :] if placement.in_place else tensor.data[:0]
        cpu, ssd = (copies, itself) if tensor.on_disk else (itself, None)
        super().__init__(WHAT, entry, native.TieredTable(tensor.row_bytes, ends, None, [], cpu, None, ssd=ssd), threads)
        self._what, self._file = WHAT, tensor.file

    def _place(self, tier: str) -> str:
        return f"{self._file} (mapped)" if tier == "ssd" and self._file is not None else "host memory"


class HostStore:
    """A tensor whose rows arrive in host memory: copies of the hottest if it is mapped from a disk."""

    def __init__(self, tensor: TensorInHand, placement: TensorPlacement, rows: CopiedRows, threads: int) -> None:
        import torch

        self.tensor, self.placement = tensor, placement
        self.device = torch.device("cpu")
        nbytes = placement.copied * tensor.row_bytes
        if nbytes:
            require_memory(nbytes + placement.table_bytes, "cpu")
        copies = anonymous(nbytes)  # forked children read the same pages, because nobody writes to them again
        if nbytes:
            tensor.copy_rows(rows.cpu, copies.reshape(-1, tensor.row_bytes), threads)
        self.table: torch.Tensor | None = None
        """Place of each row; ``None``: its number."""
        if placement.needs_table:
            self.table = torch.from_numpy(placement.table(rows))
        self.rows = HostTensorRows(tensor, placement, copies, threads)

    def ids(self, ids: Any) -> torch.Tensor:
        """Row numbers where the table of places lies: int64, shape (n,)."""
        import torch

        return torch.from_numpy(as_ids(ids).copy())  # what is checked is what is used, whatever others write to `ids`

    def has(self, out: torch.Tensor) -> bool:
        """Whether rows can be gathered into `out`."""
        return out.device.type == "cpu"

    def take(self, places: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
        """Rows of places, as bytes."""
        return self.rows.gather(places, out=out)

    def close(self) -> None:
        """Give memory back."""
        self.rows.close()


def tier_rows(size: str | int, what: str, tensor: TensorInHand) -> int:
    """Rows of a tensor that a size, or a share of the tensor, has room for."""
    parsed, row_bytes = parse_size(size, what), tensor.row_bytes
    if parsed.auto:
        raise InputError(f"{what}: expected a size such as 2GiB, or a share of the tensor such as 25%, found 'auto'")
    nbytes = parsed.of(tensor.num_rows * row_bytes)
    if 0 < nbytes < row_bytes <= tensor.num_rows * row_bytes:
        raise InputError(f"{what}: expected room for a row at least ({row_bytes} bytes), found {size!r}")
    return min(tensor.num_rows, nbytes // row_bytes)


def cpu_rows(size: str | int, tensor: TensorInHand) -> int:
    """Rows of a tensor on disk to copy into memory; ``auto``: those that most of what is free has room for."""
    if parse_size(size, "cpu").auto:
        # Beside them there may be a table of places.
        room = int(AUTO_SHARE * available_memory()) - 8 * tensor.num_rows
        return max(0, min(tensor.num_rows, room // tensor.row_bytes))
    return tier_rows(size, "cpu", tensor)


def require_memory(nbytes: int, what: str) -> None:
    """Raise `BudgetError` unless so much host memory is free."""
    free = available_memory()
    if nbytes > free:
        raise BudgetError(
            f"{what}: copies of rows and the table of places need {format_bytes(nbytes)}, and {format_bytes(free)} "
            f"of memory are free; give a smaller {what}, or 'auto'"
        )
