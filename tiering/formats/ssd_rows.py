"""The places of rows on SSD: strides, and units of whole rows that are striped over all stripe files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any

import numpy as np
import numpy.typing as npt

SECTOR_BYTES = 512
_UNITS = (64 << 10, 1 << 20)  # bytes of a stripe unit: at least, and at most but for larger rows


def ssd_stride(row_bytes: int) -> int:
    """Return the bytes from row to row on SSD: padded to sectors where that costs an eighth at most, else to 4."""
    tight, padded = (-(-row_bytes // step) * step for step in (4, SECTOR_BYTES))
    return padded if 8 * (padded - tight) <= tight else tight


def choose_unit(tables: Iterable[tuple[int, int]], page_bytes: int, num_images: int) -> int:
    """Return the bytes of a stripe unit, whole pages, for tables of so many rows on SSD of so many bytes.

    64 KiB, doubled to 1 MiB at most until rows fill all but a hundredth of it, and no less than the largest row. Where
    tables have less than that for each image, units are halved.
    """
    sizes = [(rows, ssd_stride(row_bytes)) for rows, row_bytes in tables if rows]
    unit, largest = max(page_bytes, _UNITS[0]), max((stride for _, stride in sizes), default=1)
    while unit < _UNITS[1] and any(unit % stride > unit // 100 for _, stride in sizes):
        unit *= 2
    most = max((rows * stride for rows, stride in sizes), default=0)
    while unit // 2 >= max(page_bytes, largest) and unit * num_images > most:
        unit //= 2
    return max(unit, -(-largest // page_bytes) * page_bytes)


@dataclass(frozen=True)
class SsdRows:
    """The position of one node type's ssd rows in the units that are striped over all stripe files."""

    first_unit: int  # unit of row 0
    num_units: int  # units of the type
    stride: int  # bytes from row to row
    rows_per_unit: int  # rows of a unit; 0 in the one file of an older layout: rows run through the ends of units

    @classmethod
    def plan(cls, first_unit: int, rows: int, stride: int, unit_bytes: int) -> SsdRows:
        """Place `rows` rows from `first_unit` on."""
        per_unit = unit_bytes // stride
        return cls(first_unit, -(-rows // per_unit) if per_unit else -(-rows * stride // unit_bytes), stride, per_unit)

    @classmethod
    def plan_all(cls, tables: Sequence[tuple[int, int]], page_bytes: int, num_images: int) -> tuple[int, list[SsdRows]]:
        """Return the bytes of a unit, and the places of tables of so many rows of so many bytes, in turn."""
        unit, places, first = choose_unit(tables, page_bytes, num_images), [], 0
        for rows, row_bytes in tables:
            places.append(cls.plan(first, rows, ssd_stride(row_bytes), unit))
            first += places[-1].num_units
        return unit, places

    @classmethod
    def from_json(cls, entry: Mapping[str, int]) -> SsdRows:
        """Read the form of the manifest; earlier versions striped by pages."""
        return cls(**{name.replace("page", "unit"): value for name, value in entry.items()})

    def skip(self, rows: int, unit_bytes: int) -> tuple[int, SsdRows]:
        """Return how many of the first `rows` rows fill whole units, and the position of the rows after them."""
        per_unit = self.rows_per_unit
        step = per_unit or unit_bytes // gcd(self.stride, unit_bytes)
        rows -= rows % step
        units = rows // per_unit if per_unit else rows * self.stride // unit_bytes
        return rows, replace(self, first_unit=self.first_unit + units, num_units=self.num_units - units)

    def begins(self, rows: npt.NDArray[Any], unit_bytes: int) -> npt.NDArray[np.int64]:
        """Return the offset of rows, in bytes from the start of `first_unit`, by their numbers within the ssd tier."""
        wide = rows.astype(np.int64)
        if not self.rows_per_unit:
            return wide * self.stride
        return wide // self.rows_per_unit * unit_bytes + wide % self.rows_per_unit * self.stride
