"""The loss of a codec: errors of decoded rows, relative to the standard deviation of their column."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tiering import native
from tiering.codecs.codec import Bytes, Codec, FloatRows


@dataclass(frozen=True)
class CodecLoss:
    """Errors of a table, in standard deviations of a column; of a constant column in multiples of its value."""

    largest: float
    rms: float  # the root of the mean square over all columns
    worst_column: int  # the one with the largest root mean square; -1 where all are exact
    worst_rms: float
    exact_columns: int  # columns without any error
    columns: int

    def as_dict(self) -> dict[str, Any]:
        """Return all figures, JSON types only."""
        return asdict(self)

    def __str__(self) -> str:
        if self.exact_columns == self.columns:
            return "exact"
        exact = f"{self.exact_columns} of {self.columns} columns exact"
        worst = f"worst column {self.worst_column} (rms {self.worst_rms:.2g})"
        return f"rms {self.rms:.2g}, largest {self.largest:.2g} standard deviations; {worst}; {exact}"


class LossMeter:
    """A meter of the errors of one table, whose rows pass in order, in blocks of any size."""

    def __init__(self, codec: Codec) -> None:
        self._codec, self._errors = codec.rows(), native.ColumnErrors(codec.dim)

    def add(self, rows: FloatRows, stored: Bytes, threads: int = 1) -> None:
        """Take in rows of float32, and the same as they are stored."""
        self._errors.add(self._codec, rows, stored, threads)

    def loss(self) -> CodecLoss:
        """Return the loss of the rows so far."""
        count = max(1, self._errors.num_rows)
        first, total, squares, error_squares, worst = self._errors.sums
        deviation = np.sqrt(np.maximum(squares / count - (total / count) ** 2, 0))
        unit = np.where(deviation > 0, deviation, np.where(first != 0, np.abs(first), 1))
        rms, largest, exact = np.sqrt(error_squares / count) / unit, worst / unit, int((worst == 0).sum())
        column = int(rms.argmax()) if exact < len(rms) else -1
        return CodecLoss(
            float(largest.max(initial=0.0)), float(np.sqrt((rms**2).mean())) if len(rms) else 0.0, column,
            float(rms[column]) if column >= 0 else 0.0, exact, len(rms),
        )  # fmt: skip
