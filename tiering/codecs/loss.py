"""The loss of a codec: errors of decoded rows, relative to the standard deviation of their column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from tiering import native
from tiering.codecs.codec import Bytes, Codec, FloatRows
from tiering.errors import InputError

LossSums = list[list[float]]
"""Sums of errors of some rows of a table: lists with a number for each column, as in `native.ColumnErrors.sums`."""


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
        return self.describe(str(self.worst_column))

    def describe(self, worst_column: str) -> str:
        """Return the figures in a line that calls the worst column so."""
        if self.exact_columns == self.columns:
            return "exact"
        exact = f"{self.exact_columns} of {self.columns} columns exact"
        worst = f"worst column {worst_column} (rms {self.worst_rms:.2g})"
        return f"rms {self.rms:.2g}, largest {self.largest:.2g} standard deviations; {worst}; {exact}"


class LossMeter:
    """A meter of the errors of one table, whose rows pass in order, in blocks of any size."""

    def __init__(self, codec: Codec, where: str = "rows") -> None:
        self.codec, self._where, self._errors = codec, where, native.ColumnErrors(codec.dim)

    def encode(self, rows: FloatRows, threads: int = 1, out: Bytes | None = None) -> Bytes:
        """Return float32 rows as `Codec.encode` does, and add up their errors; refuse numbers that become infinite."""
        stored = self.codec.encode(rows, threads, out)
        self._errors.add(self.codec.rows(), rows, stored, threads)
        if (beyond := np.isinf(self._errors.sums[4])).any():  # bfloat16 ends a little before float32
            column = int(beyond.argmax())
            finite = rows[np.isfinite(rows[:, column]), column]
            raise InputError(
                f"{self._where}: column {column} has {finite[np.abs(finite).argmax()]:g}, which {self.codec.name} "
                "rounds to infinity; store the table as float32, or change the value"
            )
        return stored

    @property
    def num_rows(self) -> int:
        """Rows so far."""
        return self._errors.num_rows

    def sums(self) -> LossSums:
        """Return the sums of the rows so far, JSON types."""
        return [column.tolist() for column in self._errors.sums]

    def loss(self) -> CodecLoss:
        """Return the loss of the rows so far."""
        return sum_losses([self.sums()])


def sum_losses(parts: Sequence[LossSums]) -> CodecLoss:
    """Return the loss of a table from the sums of its parts; figures are rounded so that the cut does not show."""
    first, total, squares, error_squares, worst, counts = np.stack(parts, 1)
    base = first[(counts > 0).argmax(0), np.arange(first.shape[1])]  # from which constants give 0
    count, numbers = np.maximum(counts.sum(0), 1), np.maximum(counts, 1)
    means = first - base + total / numbers
    mean = (counts * means).sum(0) / count
    spread = (squares - total**2 / numbers + counts * (means - mean) ** 2).sum(0)
    deviation, value = np.sqrt(np.maximum(spread / count, 0)), np.abs(base)
    unit = np.where(deviation > 0, deviation, np.where(value > 0, value, 1))
    rms, largest = np.round(np.sqrt(error_squares.sum(0) / count) / unit, 12), worst.max(0) / unit
    exact, column = int((worst.max(0) == 0).sum()), int(rms.argmax()) if rms.any() else -1
    figures = (largest.max(initial=0), np.sqrt((rms**2).mean()) if rms.size else 0, rms[column] if column >= 0 else 0)
    most, mean_rms, worst_rms = (float(f"{figure:.4g}") for figure in figures)
    return CodecLoss(most, mean_rms, column, worst_rms, exact, rms.size)
