"""Dtypes that rows are delivered as, decoded on the way from what is stored."""

from __future__ import annotations

from dataclasses import dataclass

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.codecs import AUTO, CODECS, DELIVERED, Codec
from tiering.errors import CapabilityError, InputError
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
    def of(cls, layout: Layout, entry: TypeLayout, asked: str | None = None) -> Delivery:
        """Return how a table's rows are delivered: as `asked`, by default as the source's dtype, else ``float32``.

        `InputError` if the table cannot be delivered so.
        """
        codec, of_source, what = layout.codec(entry.node_type), entry.dtype, f"{layout.path}: {entry.label}"
        usual = of_source if codec is None else codec.delivered(of_source)
        dtype = usual if asked is None else asked
        if codec is None:
            if dtype == of_source:
                return cls(dtype, entry.row_bytes)
            if of_source not in DELIVERED or dtype not in DELIVERED:
                known = ", ".join(DELIVERED if of_source in DELIVERED else [of_source])
                raise InputError(
                    f"{what}: dtype: rows of {entry.dim} x {of_source} can be delivered as {known}, found "
                    f"{dtype!r}; omit dtype, or make the layout with --dtype"
                )
            codec = CODECS[of_source](entry.dim)
        try:
            out_bytes = codec.rows(dtype).out_bytes
        except InputError as error:
            raise InputError(f"{what}: {error}") from None
        return cls(dtype, out_bytes, None if codec.name == dtype and out_bytes == codec.row_bytes else codec)

    def refuse_decoding(self, layout: Layout, entry: TypeLayout) -> None:
        """Refuse rows that a GPU which reads drives by itself would have to decode."""
        if self.codec is not None:
            stored = entry.dtype if entry.dtype in CODECS else AUTO
            remedy = f"make the layout with --dtype {stored}" if entry.codec else "omit dtype"
            raise CapabilityError(
                f"engine='bam': {layout.path}: rows of {entry.label} are stored as {self.codec.name}, which a GPU "
                f"cannot decode to {self.dtype} when it reads drives itself; {remedy}, or use another engine"
            )

    @classmethod
    def plain(cls, entry: TypeLayout) -> Delivery:
        """Return the delivery of rows without a codec."""
        return cls(entry.dtype, entry.dim * storage_dtype(entry.dtype).itemsize)
