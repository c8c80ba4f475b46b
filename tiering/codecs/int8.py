"""The codec int8: 256 steps between the minimum and the maximum of each column, whole numbers exact."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt

from tiering.codecs.codec import HUGE, NOT_FINITE, TINY, Codec, ColumnFacts

if TYPE_CHECKING:
    from typing_extensions import Self

_STEPS = 255
_FAR = 2.0**20  # steps from 0 beyond which a scale is a power of two: products are exact
_TOP = 2.0**24 - 256  # largest offset: with a code added it is still a whole float32

Floats = npt.NDArray[np.float64]


class Int8(Codec):
    """One byte; a number is ``(code + offset) * scale`` of its column, rounded once."""

    name, scaled = "int8", True
    exchange = ("uint8", "scale", "offset")
    refused: ClassVar[dict[int, str]] = {NOT_FINITE: "float32, float16 or bfloat16", HUGE: "float32 or bfloat16"}

    @classmethod
    def fit(cls, columns: ColumnFacts) -> Self:
        """Return the codec of the columns' minima and maxima; grids, two values with 0 and constants are exact."""
        if not columns.num_rows:
            return cls(len(columns.low), np.ones(len(columns.low), np.float32), np.zeros(len(columns.low), np.int32))
        low, high = columns.low.astype(np.float64), columns.high.astype(np.float64)
        most, spread = np.maximum(-low, high), high - low
        even = (spread / _STEPS).astype(np.float32)
        short = even.astype(np.float64) * _STEPS < spread
        scale: Floats = np.maximum(np.where(short, np.nextafter(even, np.float32(np.inf)), even), TINY).astype(float)
        scale = np.where(most > _FAR * scale, _power_above(np.maximum(scale, most / _TOP)), scale)
        grid = np.ldexp(1.0, np.clip(columns.lowest_bit, -126, 126))
        scale = np.where((spread <= _STEPS * grid) & (most <= _TOP * grid) & (most > 0), grid, scale)
        two_values = (columns.least == most) & ((low >= 0) | (high <= 0))
        scale = np.where(most < TINY, 1.0, np.where(two_values, most, scale))
        return cls(len(low), scale.astype(np.float32), np.rint(low / scale).astype(np.int32))

    @classmethod
    def _sound(cls, scale: npt.NDArray[np.float32], offset: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        return np.abs(offset) <= _TOP


def _power_above(values: Floats) -> Floats:
    """Return the smallest powers of two that are not less."""
    powers: Floats = np.ldexp(1.0, np.ceil(np.log2(np.maximum(values, TINY))).astype(int))
    return powers
