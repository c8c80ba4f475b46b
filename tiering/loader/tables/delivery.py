"""Dtypes that rows are delivered as, decoded on the way from what is stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.codecs import CODECS, DELIVERED, Codec
from tiering.errors import InputError
from tiering.formats.layout import Layout, TypeLayout


@dataclass(frozen=True)
class Delivery:
    """The dtype and bytes of delivered rows, and how they are made of stored ones."""

    dtype: str
    out_bytes: int
    codec: Codec | None = None
    """The codec that decodes rows; ``None``: stored rows are what is delivered."""

    @property
    def rows(self) -> native.RowCodec | None:
        """The core's codec."""
        return None if self.codec is None else self.codec.rows(self.dtype)

    @classmethod
    def of(cls, layout: Layout, entry: TypeLayout, asked: Any = None) -> Delivery:
        """Return how a table's rows are delivered: as `asked`, by default as the source's dtype, else ``float32``.

        `InputError` if the table cannot be delivered so.
        """
        codec, of_source = layout.codec(entry.node_type), entry.dtype
        usual = of_source if codec is None or of_source in DELIVERED else "float32"
        dtype = usual if asked is None else str(asked).removeprefix("torch.")
        if codec is None:
            if dtype == of_source:
                return cls(dtype, entry.row_bytes)
            fits = of_source in DELIVERED and CODECS[of_source].stored_bytes(entry.dim) == entry.row_bytes
            if not fits or dtype not in DELIVERED:
                raise InputError(
                    f"dtype: {layout.path}: rows of {entry.label}, {entry.dim} x {of_source}, are delivered as they "
                    f"are, found {dtype!r}; leave dtype out, or make the layout with --dtype"
                )
            codec = CODECS[of_source](entry.dim)
        out_bytes = codec.rows(dtype).out_bytes
        return cls(dtype, out_bytes, None if codec.name == dtype and out_bytes == codec.row_bytes else codec)

    @classmethod
    def plain(cls, entry: TypeLayout) -> Delivery:
        """Return that of rows without a codec."""
        return cls(entry.dtype, entry.dim * storage_dtype(entry.dtype).itemsize)
