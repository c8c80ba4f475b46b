"""Codecs that are floating point: float32, float16, bfloat16, without parameters, and float8_e4m3 by a power of two."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tiering.codecs.codec import BEYOND_HALF, HUGE, NOT_FINITE, Codec, ColumnFacts

if TYPE_CHECKING:
    from typing_extensions import Self


class Float32(Codec):
    """Rows as they are."""

    name, code_bytes = "float32", 4


class Float16(Codec):
    """Half the bytes, 11 digits in binary, at most 65504."""

    name, code_bytes = "float16", 2
    refused: ClassVar[dict[int, str]] = {BEYOND_HALF: "float32 or bfloat16"}


class BFloat16(Codec):
    """Half the bytes, 8 digits in binary, the range of float32."""

    name, code_bytes = "bfloat16", 2


_FAR = 2.0**-8  # of the table's maximum: a column below has a scale of its own


class Float8(Codec):
    """One byte; one scale for the table, so that it can be exchanged, but for columns of much smaller numbers."""

    name, scaled = "float8_e4m3", True
    exchange = ("float8_e4m3fn", "scale")
    refused: ClassVar[dict[int, str]] = {NOT_FINITE: "float32, float16 or bfloat16", HUGE: "float32 or bfloat16"}

    @classmethod
    def fit(cls, columns: ColumnFacts) -> Self:
        """Return the codec whose scales are the smallest powers of two by which the maxima fit."""
        low, high = columns.low.astype(np.float64), columns.high.astype(np.float64)
        most = np.maximum(-low, high) if columns.num_rows else np.zeros(len(low))
        table = most.max(initial=0.0)
        own = (most > 0) & (most < _FAR * table)
        fraction, exponent = np.frexp(np.where(own, most, table))
        power = np.where(fraction == 0, 0, np.clip(exponent - 9 + (fraction > 0.875), -117, 119))
        return cls(len(low), np.ldexp(1.0, power).astype(np.float32), np.zeros(len(low), np.int32))

    @classmethod
    def _sound(cls, scale: npt.NDArray[np.float32], offset: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        fraction, exponent = np.frexp(scale)
        sound: npt.NDArray[Any] = (fraction == 0.5) & (exponent >= -116) & (exponent <= 120) & (offset == 0)
        return sound
