"""Codecs without parameters: float32, float16 and bfloat16, rounded to the nearest, ties to even."""

from __future__ import annotations

from typing import ClassVar

from tiering.codecs.codec import BEYOND_HALF, Codec


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
