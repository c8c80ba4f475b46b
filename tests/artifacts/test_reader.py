import os

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tiering import native
from tiering.artifacts import reader
from tiering.artifacts.reader import SegmentFile, buffer_bytes, chunks
from tiering.artifacts.storage import aligned_bytes, padded
from tiering.errors import StorageError

from ..conftest import really_sync

ENGINES = ["threads", *([] if native.uring_unavailable() else ["io_uring"])]


def drop_cache(path):
    with path.open("rb") as file:
        really_sync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def saved(path, values):
    """The array in a file of format npy, mapped, and out of the page cache."""
    np.save(path, values)
    drop_cache(path)
    return np.load(path, mmap_mode="r")


@pytest.fixture(params=ENGINES)
def engine(request, monkeypatch):
    monkeypatch.setattr(reader, "direct_engine", lambda: request.param)
    return str(request.param)


@pytest.fixture
def uncached(monkeypatch):
    """Read from disk even what is in the page cache."""
    monkeypatch.setattr(reader, "_is_cached", lambda region, size: False)


@pytest.mark.usefixtures("uncached")
@pytest.mark.parametrize("step", [1, 7, 1000, 4096, 100_000, 250_000])
def test_chunks_are_the_array(tmp_path, engine, step):
    size = 100_003 if step > 100 else 300
    edges = np.random.default_rng(1).integers(0, 1 << 40, (2, size))
    whole = saved(tmp_path / "edges.npy", edges)
    memory = np.arange(size, dtype=np.int32)
    ends = []
    for first, end, (src, own, dst) in chunks([whole[0], memory, whole[1]], step):
        np.testing.assert_array_equal(src, edges[0, first:end])
        np.testing.assert_array_equal(own, memory[first:end])
        np.testing.assert_array_equal(dst, edges[1, first:end])
        ends.append((first, end))
    assert ends == [(first, min(size, first + step)) for first in range(0, size, step)]


@pytest.mark.usefixtures("uncached")
def test_columns_of_one_table_are_read_once(tmp_path, engine):
    table = np.arange(30_000, dtype=np.int64).reshape(-1, 3)
    mapped = saved(tmp_path / "table.npy", table)
    columns = [mapped[:, 2], mapped[:, 0]]
    assert buffer_bytes(columns) == 2 * 24
    for first, end, (last, zeroth) in chunks(columns, 999):
        np.testing.assert_array_equal(last, table[first:end, 2])
        np.testing.assert_array_equal(zeroth, table[first:end, 0])


@pytest.mark.usefixtures("uncached")
@given(st.integers(0, 3000), st.integers(1, 4000), st.integers(0, 50), st.sampled_from([1, 4, 8, 601]))
@settings(max_examples=40)
def test_any_offset_and_step(tmp_path_factory, size, step, offset, width):
    path, shape = tmp_path_factory.mktemp("stream") / "raw", (size + offset, width)
    rows = np.random.default_rng(size).integers(0, 100, shape, np.uint8)
    path.write_bytes(b"x" * 3 + rows.tobytes())
    mapped = np.memmap(path, np.uint8, "r", 3, shape)[offset:] if size + offset else rows
    parts = [part.copy() for _, _, (part,) in chunks([mapped], step)]
    np.testing.assert_array_equal(np.concatenate([rows[:0], *parts]), rows[offset:])


def test_direct_reads_leave_the_page_cache_alone(tmp_path):
    assert buffer_bytes([np.arange(10)]) == 0
    np.save(tmp_path / "cached.npy", np.arange(1 << 20))
    assert buffer_bytes([np.load(tmp_path / "cached.npy", mmap_mode="r")]) == 0
    mapped = saved(tmp_path / "values.npy", np.arange(1 << 20))
    if buffer_bytes([mapped]) == 0:
        pytest.skip("this file system keeps files in the page cache")
    for _, _, (part,) in chunks([mapped], 1 << 16):
        assert part.size
    assert buffer_bytes([mapped]) == 16  # still not cached


@pytest.mark.usefixtures("uncached")
def test_a_file_that_shrank_is_named(tmp_path, engine):
    mapped = saved(tmp_path / "values.npy", np.arange(1 << 16))
    parts = chunks([mapped], 1 << 12)
    next(parts)
    os.truncate(tmp_path / "values.npy", 8192)
    with pytest.raises(StorageError, match=r"values\.npy.*truncated"):
        list(parts)


def test_reader_checks_its_buffers(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(100_000))
    stream = native.StreamReader([str(path)], [aligned_bytes(8192)], "threads")
    with pytest.raises(ValueError, match="too small: expected 12288 bytes, found 8192"):
        stream.start([(0, 4095, 8192, 0, 0)])
    with pytest.raises(ValueError, match="no buffer has the number 1"):
        stream.start([(0, 0, 1, 1, 0)])
    with pytest.raises(ValueError, match="multiple of 4096 within its buffer"):
        stream.start([(0, 0, 1, 0, 100)])
    with pytest.raises(ValueError, match="nothing is being read"):
        stream.finish()
    stream.start([(0, 4000, 4000, 0, 0)])
    with pytest.raises(ValueError, match="being read already"):
        stream.start([(0, 0, 1, 0, 0)])
    assert stream.finish() == [4000]
    with pytest.raises(ValueError, match="expected one of auto, io_uring, threads, found 'mapped'"):
        native.StreamReader([str(path)], [], "mapped")


def fill(path, sizes, seed=0):
    random = np.random.default_rng(seed)
    file, contents = SegmentFile(path, sum(map(padded, sizes))), []
    for size in sizes:
        data = aligned_bytes(padded(size))
        data[:] = random.integers(0, 256, data.size, np.uint8)
        file.write(data, file.add(size))
        contents.append(data[:size].copy())
    return file, contents


def buffers_of(sizes, memory=0):
    return [aligned_bytes(max([padded(size) for size in sizes] + [memory // 4096 * 4096])) for _ in range(2)]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.integers(0, 20_000), max_size=20), memory=st.integers(0, 200_000), direct=st.booleans())
def test_read_again_in_order(tmp_path, sizes, memory, direct):
    with pytest.MonkeyPatch.context() as patch:
        if not direct:
            patch.setattr(reader, "open_direct", lambda path: None)
        file, contents = fill(tmp_path / "file", sizes)
        found = [segment.copy() for segment in file.read(buffers_of(sizes, memory))]
    assert [each.size for each in found] == sizes
    for one, other in zip(found, contents, strict=True):
        np.testing.assert_array_equal(one, other)
    file.remove()
    file.remove()
    assert not (tmp_path / "file").exists()


def test_a_file_that_was_cut(tmp_path):
    file, _ = fill(tmp_path / "file", [9000, 9000])
    os.truncate(tmp_path / "file", 10_000)
    with pytest.raises(StorageError, match="ends at byte 10000"):
        list(file.read(buffers_of([9000])))
    file.remove()
