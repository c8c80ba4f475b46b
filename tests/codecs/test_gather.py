"""Gathers that decode: rows of every tier, from memory, read for the gather, or from slots of a buffer."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from row_buffers import ENGINES
from striped_rows import Striped

from tiering import native
from tiering.artifacts.manifest import storage_dtype
from tiering.codecs import CODECS, DELIVERED, fit_codec
from tiering.errors import RefusedError


def table_of(codec, stored, sizes, delivered, reader=None, **ssd):
    """Rows spread over gpu, two peers, cpu and ssd tier, the last in memory where no reader has them."""
    ends = np.cumsum(sizes).tolist()
    gpu, peer, cpu, cold, _ = np.split(stored, ends)
    peers = [np.ascontiguousarray(peer[p::2]).ravel() for p in range(2)]
    rows = codec.rows(delivered)
    where = ssd or {"ssd": np.ascontiguousarray(cold).ravel()}
    return native.TieredTable(
        rows.row_bytes, ends, gpu.ravel().copy(), peers, cpu.ravel().copy(), reader, **where, codec=rows
    )


def made(name, rows, dim):
    values = np.random.default_rng(dim).integers(-100, 100, (rows, dim)).astype(np.float32) / 7
    codec = fit_codec(name, [values], dim, "float32", "here")
    return codec, codec.encode(values)


@pytest.mark.parametrize("name", CODECS)
@settings(max_examples=25, deadline=None)
@given(
    dim=st.integers(1, 70), count=st.sampled_from([0, 1, 13, 1200]), threads=st.integers(1, 2),
    delivered=st.sampled_from(DELIVERED),
)  # fmt: skip
def test_rows_in_memory(name, dim, count, threads, delivered):
    codec, stored = made(name, 40, dim)
    expected = codec.decode(stored, delivered)
    ids = np.random.default_rng(count).integers(0, 40, count)
    out = np.full((count + 1, dim), 7, storage_dtype(delivered))
    table = table_of(codec, stored, (8, 11, 12, 9), delivered)
    stats = table.gather(ids, out[:count].view(np.uint8), threads)
    assert out[:count].tobytes() == expected[ids].tobytes()
    assert (out[count] == 7).all()
    assert sum(stats.bytes) == count * codec.row_bytes


def on_disk(tmp_path, codec, stored, images, engine, *, pages=1, running_on=False, verify=False):
    """Rows of which 30 lie in memory, and the others on images, in units or one after the other."""
    space = Striped([(60, codec.row_bytes)], 4096, images, 1, pages)
    paths = space.write(tmp_path, [stored[30:]])
    where = {**vars(space.tables[0]), "unit_bytes": space.unit_bytes, "page_bytes": 4096}
    if running_on:
        paths[0].write_bytes(bytes(space.unit_bytes) + stored[30:].tobytes() + bytes(4096))
        where["rows_per_unit"] = 0
    if verify:
        where["checksums"] = [native.page_hashes(np.fromfile(path, np.uint8), 4096) for path in paths]
    reader = native.SsdReader([str(path) for path in paths], 4096, engine, 4, "off", codec.row_bytes)
    del where["rows"], where["row_bytes"]
    return paths, functools.partial(table_of, codec, stored, (10, 10, 10, 60), reader=reader, **where)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("dim", [3, 700, 6000])
@pytest.mark.parametrize(("images", "running_on"), [(1, False), (2, False), (1, True)])
@pytest.mark.parametrize("engine", ENGINES)
def test_rows_that_are_read(tmp_path, name, dim, images, running_on, engine):
    codec, stored = made(name, 90, dim)
    _, table = on_disk(tmp_path, codec, stored, images, engine, running_on=running_on)
    ids = np.concatenate([np.random.default_rng(0).integers(0, 90, 700), np.arange(90)])
    for delivered in DELIVERED:
        out = np.empty((790, dim), storage_dtype(delivered))
        stats = table(delivered=delivered).gather(ids, out.view(np.uint8), 2)
        assert out.tobytes() == codec.decode(stored, delivered)[ids].tobytes()
        assert stats.reads > 0
        in_order = table(delivered=delivered).gather(np.arange(30, 90), out[:60].view(np.uint8), 1)
        assert out[:60].tobytes() == codec.decode(stored[30:], delivered).tobytes()
        assert (in_order.direct_reads > 0) == (name == delivered and codec.row_bytes == out[0].nbytes)


@pytest.mark.parametrize("name", ["float16", "int8"])
@pytest.mark.parametrize("engine", ENGINES)
def test_pages_are_verified_before_rows_are_decoded(tmp_path, name, engine):
    """Rows of a read with a damaged page are not written; a row may begin in the page before."""
    codec, stored = made(name, 90, 700)
    paths, table = on_disk(tmp_path, codec, stored, 2, engine, pages=4, verify=True)
    ids = np.arange(89, 29, -2)
    out = np.full((30, 700), 7, np.float32)
    assert table(delivered="float32").gather(ids, out.view(np.uint8), 2).bad_page < 0
    assert out.tobytes() == codec.decode(stored)[ids].tobytes()
    image = bytearray(paths[1].read_bytes())
    image[4096 + 100] ^= 1
    paths[1].write_bytes(image)
    out[:] = 7
    assert table(delivered="float32").gather(ids, out.view(np.uint8), 2).bad_page == 1 * 2 + 1
    unwritten = (out == 7).all(1)
    assert 0 < unwritten.sum() < 30
    assert out[~unwritten].tobytes() == codec.decode(stored)[ids[~unwritten]].tobytes()
    first, last = 4096 // codec.row_bytes, 8191 // codec.row_bytes  # rows of that page, in the first unit, of image 1
    assert unwritten[np.isin(ids - 30, np.arange(first, last + 1))].all()


@pytest.mark.parametrize("name", ["float32", "float16", "int8"])
@pytest.mark.parametrize("parts", [1, 3])
def test_rows_in_slots(tmp_path, name, parts):
    """Two tables, one decoded and one as it is stored, whose rows of the ssd tier come at once or in parts."""
    random = np.random.default_rng(parts)
    codec, stored = made(name, 80, 50)
    plain = random.integers(0, 256, (80, 24), dtype=np.uint8)
    (tmp_path / "empty").touch()
    reader = native.SsdReader([str(tmp_path / "empty")], 4096, "threads", 1, "off")
    tables = [
        native.TieredTable(
            size, [0, 0, 10, 80], None, [], truth[:10].ravel().copy(), reader, 0, size, 1, 4096, 4096, codec=how
        )
        for size, truth, how in ((codec.row_bytes, stored, codec.rows("bfloat16")), (24, plain, None))
    ]
    pools, arena = [(codec.row_bytes, 70), (24, 70)], np.concatenate([stored[10:].ravel(), plain[10:].ravel()])
    ids = [random.integers(0, 80, 31), random.integers(0, 80, 7)]
    slots = np.concatenate([one[one >= 10] - 10 + 70 * t for t, one in enumerate(ids)]).astype(np.uint32)
    outs = [np.empty((31, 50), np.uint16), np.empty((7, 24), np.uint8)]
    views = [out.view(np.uint8) for out in outs]
    order = np.array_split(random.permutation(slots.size), parts)
    for number, places in enumerate(order if parts > 1 else [np.arange(slots.size)]):
        native.gather_from_slots(
            arena, pools, slots[places], places.astype(np.uint32) if parts > 1 else np.empty(0, np.uint32), slots.size,
            number == 0, tables, ids, views, 2,
        )  # fmt: skip
    assert outs[0].tobytes() == codec.decode(stored, "bfloat16")[ids[0]].tobytes()
    assert outs[1].tobytes() == plain[ids[1]].tobytes()


def test_what_does_not_fit():
    codec, stored = made("int8", 4, 5)
    with pytest.raises(RefusedError, match="row_bytes: expected those of the codec, 8, found 5"):
        native.TieredTable(5, [0, 0, 4, 4], None, [], stored.ravel(), None, codec=codec.rows())
    table = native.TieredTable(8, [0, 0, 4, 4], None, [], stored.ravel(), None, codec=codec.rows())
    with pytest.raises(RefusedError, match=r"out: expected shape \(1, 20\) in bytes, contiguous, found \(1, 8\)"):
        table.gather(np.zeros(1, np.int64), np.empty((1, 8), np.uint8))
    with pytest.raises(RefusedError, match="scale, offset: expected 5 values each, found 4 and 5"):
        native.RowCodec("int8", "float32", 5, codec.scale[:4], codec.offset)
    with pytest.raises(RefusedError, match="no encoding 'int8'"):
        native.RowCodec("int8", "int8", 5, codec.scale, codec.offset)
    with pytest.raises(RefusedError, match=r"rows: expected shape \(2, 5\), found \(2, 4\)"):
        codec.encode(np.zeros((2, 4), np.float32))
    with pytest.raises(RefusedError, match=r"stored: expected shape \(2, 8\), found \(2, 7\)"):
        codec.decode(np.zeros((2, 7), np.uint8))
