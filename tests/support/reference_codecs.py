"""The codecs by their rules, another way than the core's: in float64, and by looking codes up."""

from __future__ import annotations

from typing import Any

import numpy as np

TINY, FAR, TOP = 2.0**-126, 2.0**20, 2.0**24 - 256
E4M3 = np.array([(m / 8 * 2.0**-6 if e == 0 else (1 + m / 8) * 2.0 ** (e - 7)) for e in range(16) for m in range(8)])
"""Magnitudes by the low 7 bits of a code; the last one, 480, is NaN elsewhere, and never stored."""


def int8_fit(x: Any) -> tuple[Any, Any]:
    """Scales and offsets, column by column."""
    scales, offsets = [], []
    for column in x.T.astype(np.float64):
        low, high = column.min(), column.max()
        most = max(abs(low), abs(high))
        values = set(column.tolist()) - {0.0}
        scale = float(np.float32((high - low) / 255))
        if scale * 255 < high - low:
            scale = float(np.nextafter(np.float32(scale), np.float32(np.inf)))
        scale = max(scale, TINY)
        if most > FAR * scale:
            scale = power_above(max(scale, most / TOP))
        if values:
            grid = min(1 / value.as_integer_ratio()[1] for value in values)
            while all((value / (2 * grid)).is_integer() for value in values):
                grid *= 2
            grid = max(grid, TINY)
            if high - low <= 255 * grid and most <= TOP * grid:
                scale = grid
        if most < TINY:
            scale = 1.0
        elif len(values) == 1:
            scale = most
        scales.append(scale)
        offsets.append(round(low / scale))
    return np.array(scales, np.float32), np.array(offsets, np.int32)


def power_above(value: float) -> float:
    """The smallest power of two that is not less."""
    power = TINY
    while power < value:
        power *= 2
    return power


def int8_encode(x: Any, scale: Any, offset: Any) -> Any:
    """Codes; a quotient in float64, rounded to float32, is that of float32."""
    steps = (x.astype(np.float64) / scale.astype(np.float64)).astype(np.float32)
    shifted = [
        [min(max(round(float(step)) - int(o), 0), 255) for step, o in zip(row, offset, strict=True)] for row in steps
    ]
    return np.array(shifted, np.uint8).reshape(x.shape)


def int8_decode(codes: Any, scale: Any, offset: Any) -> Any:
    """An exact product in float64, rounded once."""
    return ((codes.astype(np.int64) + offset) * scale.astype(np.float64)).astype(np.float32)


def e4m3_fit(most: float) -> float:
    """The smallest power of two by which 448 reaches the largest magnitude."""
    scale = 2.0**-117
    while most > 448 * scale and scale < 2.0**119:
        scale *= 2
    return scale if most else 1.0


def e4m3_encode(x: Any, scale: Any, offset: Any) -> Any:
    """The nearest magnitude of the table; of two, that of the even code."""
    sizes = np.abs(x.astype(np.float64)) / scale.astype(np.float64)
    distance = np.abs(sizes[..., None] - E4M3[:127])
    lower, tied = distance.argmin(-1), (distance == distance.min(-1, keepdims=True)).sum(-1) == 2
    codes = lower + (tied & (lower % 2 == 1))
    return (codes + np.where(np.signbit(x), 128, 0)).astype(np.uint8)


def e4m3_decode(codes: Any, scale: Any, offset: Any) -> Any:
    """The table times the scale."""
    sign = np.where(codes >> 7, -1.0, 1.0)
    return (sign * E4M3[codes & 127] * scale.astype(np.float64)).astype(np.float32)


def float16_encode(x: Any, scale: Any = None, offset: Any = None) -> Any:
    """NumPy's own."""
    with np.errstate(over="ignore"):
        return x.astype(np.float16).view(np.uint16)


def float16_decode(codes: Any, scale: Any = None, offset: Any = None) -> Any:
    """NumPy's own."""
    return codes.view(np.float16).astype(np.float32)


def bfloat16_encode(x: Any, scale: Any = None, offset: Any = None) -> Any:
    """The nearer of the two neighbors in float64; of two as near, the even one."""
    below = (x.view(np.uint32) >> 16).astype(np.uint16)
    above = below + np.uint16(1)
    near, far = (np.abs(bfloat16_decode(each).astype(np.float64)) for each in (below, above))
    far = np.where(np.isinf(far), 2.0**128, far)
    size = np.abs(x.astype(np.float64))
    with np.errstate(invalid="ignore"):
        up = (far - size < size - near) | ((far - size == size - near) & (below % 2 == 1))
    return np.where(np.isnan(x), below | 0x40, np.where(up & np.isfinite(x), above, below)).astype(np.uint16)


def bfloat16_decode(codes: Any, scale: Any = None, offset: Any = None) -> Any:
    """The upper half of a float32."""
    return (codes.astype(np.uint32) << 16).view(np.float32)


CODES = {"float32": np.float32, "float16": np.uint16, "bfloat16": np.uint16, "float8_e4m3": np.uint8, "int8": np.uint8}
ENCODE = {
    "float32": lambda x, *_: x.copy(), "float16": float16_encode, "bfloat16": bfloat16_encode,
    "float8_e4m3": e4m3_encode, "int8": int8_encode,
}  # fmt: skip
DECODE = {
    "float32": lambda codes, *_: codes.copy(), "float16": float16_decode, "bfloat16": bfloat16_decode,
    "float8_e4m3": e4m3_decode, "int8": int8_decode,
}  # fmt: skip
