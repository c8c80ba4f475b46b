"""Codecs: how the rows of a table are stored. A codec is a class here, a struct in C++, and a name in `CODECS`."""

from tiering.codecs.codec import DELIVERED, Codec, ColumnFacts
from tiering.codecs.fit import (
    AUTO,
    CODECS,
    codec_for,
    codec_of,
    column_facts,
    fit_codec,
    float_rows,
    half_holds,
    reads_rows,
)
from tiering.codecs.loss import CodecLoss, LossMeter, LossSums, sum_losses

__all__ = [
    "AUTO", "CODECS", "DELIVERED", "Codec", "CodecLoss", "ColumnFacts", "LossMeter", "LossSums", "codec_for",
    "codec_of", "column_facts", "fit_codec", "float_rows", "half_holds", "reads_rows", "sum_losses",
]  # fmt: skip
