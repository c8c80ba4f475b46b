"""Gathers that decode: against the gather of float32, and torch's selection of 8-bit rows, unpacked after it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness import Comparison, Sizes, Work, compare, expect
from tiering import native
from tiering.artifacts.storage import aligned_bytes
from tiering.codecs import fit_codec
from tiering.text.units import format_bytes

DIMS = (128, 768, 1024)
FLOAT, TORCH = "float32", "torch.index_select + byte_unpack"
_NAMES = ("int8", "float16", "bfloat16", "float8_e4m3")
_AIM = {FLOAT: 1.1, TORCH: 1.1}
_TURN = 1 << 26
"""Bytes of a turn's rows; other turns take other rows."""
_MMAP_THRESHOLD, _TRIM_THRESHOLD = -3, -1  # of mallopt: torch keeps the memory of its results, as the gather does


def gather(sizes: Sizes) -> Iterator[Comparison]:
    """Compare per length of a row and codec, by one thread; the table has `sizes.feature_bytes` as float32."""
    import torch

    torch.set_num_threads(1)
    for option, most in ((_MMAP_THRESHOLD, 2_000_000_000), (_TRIM_THRESHOLD, 2_000_000_000)):
        ctypes.CDLL(None).mallopt(option, most)
    for dim in DIMS:
        rows, count = sizes.feature_bytes // (4 * dim), min(_TURN, sizes.feature_bytes // 4) // (4 * dim)
        random = np.random.default_rng(dim)
        values = _aligned(random.standard_normal((rows, dim), np.float32))
        ids = [random.integers(0, rows, count) for _ in range(8)]
        out = aligned_bytes(count * dim * 4).reshape(count, dim * 4)
        plain = partial(_turn, iter_ids(ids), _table(values.view(np.uint8)), out)
        packed = torch.ops.quantized.embedding_bag_byte_prepack(torch.from_numpy(values))
        packed = torch.from_numpy(_aligned(packed.numpy()))
        selected = torch.empty((count, packed.shape[1]), dtype=torch.uint8)
        unpack = torch.ops.quantized.embedding_bag_byte_unpack
        torch_ids = iter_ids([torch.from_numpy(each) for each in ids])
        for name in _NAMES:
            codec = fit_codec(name, [values], dim, "float32", "benchmark")
            stored = _aligned(codec.encode(values))
            table = _table(stored, codec.rows())
            table.gather(ids[0], out)
            expect("quantized", bool((out.view(np.float32) == codec.decode(stored[ids[0]])).all()), name)
            peers: dict[str, Work] = {FLOAT: plain}
            if name == "int8":
                peers[TORCH] = lambda: unpack(torch.index_select(packed, 0, next(torch_ids), out=selected))  # noqa: B023
            yield compare(
                f"quantized {name}", partial(_turn, iter_ids(ids), table, out), peers, amount=count * dim * 4, unit="B",
                repeats=sizes.repeats, targets={} if name == "float8_e4m3" else _AIM,
                parameters={"table": format_bytes(rows * dim * 4), "dim": dim, "threads": 1},
            )  # fmt: skip


def iter_ids(ids: list[Any]) -> Iterator[Any]:
    """Yield the ids of one turn after the other, again and again."""
    while True:
        yield from ids


def _aligned(table: Any) -> Any:
    """Return a table in memory of large pages, as layouts have it."""
    copy = aligned_bytes(table.nbytes).view(table.dtype).reshape(table.shape)
    copy[:] = table
    return copy


def _turn(ids: Iterator[Any], table: native.TieredTable, out: Any) -> None:
    table.gather(next(ids), out)


def _table(stored: Any, codec: native.RowCodec | None = None) -> native.TieredTable:
    rows, row_bytes = stored.shape
    return native.TieredTable(row_bytes, [0, 0, rows, rows], None, [], stored.ravel(), None, codec=codec)
