"""The base of all codecs: rows of a table encoded to stored bytes, and decoded to a float type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.errors import FormatError, InputError

if TYPE_CHECKING:
    from typing_extensions import Self

FloatRows = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

DELIVERED = ("float32", "float16", "bfloat16")
"""Dtypes that rows are decoded to."""
NOT_FINITE = 0  # number that a codec may refuse: NaN or infinite
HUGE = 1  # number that a codec may refuse: at least 2**126
BEYOND_HALF = 2  # number that a codec may refuse: finite, but infinite as ``float16``
LARGEST_HALF = 65504.0


@dataclass(frozen=True)
class ColumnFacts:
    """Facts about some rows of a table, from which the parameters of a codec follow."""

    num_rows: int
    not_finite: bool  # whether a number is NaN or infinite; what follows is of the others
    low: FloatRows  # per column: the least number
    high: FloatRows  # the largest
    least: FloatRows  # the least magnitude above 0
    lowest_bit: npt.NDArray[np.int32]  # the exponent of the lowest bit that is set in any number


class Codec:
    """A storage format of one table's numbers; a subclass without `scaled` has no parameters."""

    name: ClassVar[str]
    code_bytes: ClassVar[int] = 1
    """Bytes of one stored number."""
    scaled: ClassVar[bool] = False
    refused: ClassVar[dict[int, str]] = {}
    """Kinds of numbers that cannot be stored, and the codecs that can hold them."""
    exchange: ClassVar[tuple[str, ...]] = ()
    """Dtype of stored numbers, as torch names it, and the parameters that decode them; by default `name`, and none."""

    def __init__(self, dim: int, scale: FloatRows | None = None, offset: npt.NDArray[np.int32] | None = None) -> None:
        self.dim, self.scale, self.offset = dim, scale, offset
        self.largest: float | None = None
        """The largest magnitude of a decoded number, where a fit has seen all."""
        self._rows = {dtype: native.RowCodec(self.name, dtype, dim, scale, offset) for dtype in DELIVERED}
        self.row_bytes = self.stored_bytes(dim)

    @classmethod
    def stored_bytes(cls, dim: int) -> int:
        """Return the bytes of a stored row: a multiple of 4."""
        return -(-dim * cls.code_bytes // 4) * 4

    @classmethod
    def fit(cls, columns: ColumnFacts) -> Self:
        """Return the codec for a table whose rows have all passed through `columns`."""
        return cls(len(columns.low))

    def rows(self, dtype: str = "float32") -> native.RowCodec:
        """Return the core's codec that delivers rows as `dtype`; refuse a dtype that cannot represent them."""
        if dtype not in DELIVERED:
            raise InputError(f"dtype: {self.name} rows are delivered as {', '.join(DELIVERED)}, found {dtype!r}")
        if dtype == "float16" and self.largest is not None and self.largest > LARGEST_HALF:
            raise InputError(
                f"dtype: {self.name} rows of this table reach {self.largest:g}, but float16 ends at {LARGEST_HALF:g}; "
                "deliver them as float32 or bfloat16"
            )
        return self._rows[dtype]

    def delivered(self, dtype: str) -> str:
        """Return the dtype by which rows of a source of `dtype` are delivered where none is named."""
        held = dtype != "float16" or self.largest is None or self.largest <= LARGEST_HALF
        return dtype if dtype in DELIVERED and held else "float32"

    def encode(self, rows: FloatRows, threads: int = 1, out: Bytes | None = None) -> Bytes:
        """Return float32 rows as they are stored, shape (rows, `row_bytes`), in `out` if it is given."""
        out = np.empty((len(rows), self.row_bytes), np.uint8) if out is None else out
        self._rows["float32"].encode(rows, out, threads)
        return out

    def decode(self, stored: Bytes, dtype: str = "float32", threads: int = 1) -> npt.NDArray[Any]:
        """Return stored rows as `dtype`, shape (rows, dim); ``bfloat16`` as ``uint16``."""
        codec = self.rows(dtype)
        out = np.empty((len(stored), self.dim), storage_dtype(dtype))
        codec.decode(stored, out.view(np.uint8).reshape(len(stored), codec.out_bytes), threads)
        return out

    def entry(self) -> dict[str, Any]:
        """Return the entry of a manifest: all about the codec but its parameters."""
        return {"name": self.name, "exact_columns": [], "largest": self.largest}

    def to_bytes(self) -> bytes:
        """Return the parameters as a file holds them: scales, then offsets."""
        return b"" if self.scale is None or self.offset is None else self.scale.tobytes() + self.offset.tobytes()

    @classmethod
    def from_bytes(cls, data: bytes, dim: int, where: str) -> Self:
        """Return the codec of a file of parameters, `where` in messages; `FormatError` if they are damaged."""
        if not cls.scaled:
            return cls(dim)
        if len(data) != 8 * dim:
            raise FormatError(f"{where}: expected {8 * dim} bytes of {cls.name} parameters, found {len(data)}")
        scale, offset = np.frombuffer(data, "<f4", dim).copy(), np.frombuffer(data, "<i4", dim, 4 * dim).copy()
        damaged = ~(np.isfinite(scale) & (scale >= TINY) & cls._sound(scale, offset))
        if damaged.any():
            column = int(damaged.argmax())
            found = f"scale {scale[column]}, offset {offset[column]}"
            raise FormatError(f"{where}: {found} of column {column} are no valid {cls.name} parameters; make it again")
        return cls(dim, scale, offset)

    @classmethod
    def _sound(cls, scale: FloatRows, offset: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
        """Return, per column, whether parameters with a sound scale are ones that `fit` may give."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{self.name} rows of {self.dim} numbers in {self.row_bytes} bytes>"


TINY = float(np.finfo(np.float32).tiny)
"""The smallest scale, 2**-126."""
