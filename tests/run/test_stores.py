"""What a store does."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from tiering.errors import FormatError, InputError, MissingError, StorageError
from tiering.run.store import Store

MIB = 1 << 20
Open = Callable[[str], Store]


@pytest.fixture
def opened(tmp_path):
    """Return a function that opens a store by its name."""
    return lambda name: Store(str(tmp_path / name))


@pytest.fixture
def store(opened):
    return opened("store")


def put(store: Store, key: str, *arrays: np.ndarray[Any, Any]) -> bytes:
    with store.writer(key) as out:
        for array in arrays:
            out.write(array)
    return b"".join(array.tobytes() for array in arrays)


def test_bytes_come_back_whole_and_by_ranges(store):
    grid = np.arange(24, dtype="<i8").reshape(4, 6)
    data = put(store, "job/a+b.c-d_e/1", grid[:, ::2], np.empty(0, np.float32), np.arange(5, dtype=np.uint8))
    key = "job/a+b.c-d_e/1"
    assert store.size(key) == len(data) == 101
    assert store.read(key).tobytes() == data
    for begin, nbytes in ((0, 1), (0, 101), (7, 50), (100, 1), (3, 0), (101, 0)):
        found = store.read(key, begin, nbytes)
        assert (found.dtype, found.tobytes()) == (np.uint8, data[begin : begin + nbytes])
    for begin in (0, 40, 100, 101):
        assert store.read(key, begin).tobytes() == data[begin:]


def test_a_range_beyond_the_end_is_refused(store):
    put(store, "job/short", np.zeros(10, np.uint8))
    for begin, nbytes in ((0, 11), (9, 2), (10, 1), (20, 1), (11, 0), (11, None)):
        with pytest.raises(FormatError, match=r"job/short: expected at least \d+ bytes, found 10"):
            store.read("job/short", begin, nbytes)


def test_an_object_may_be_empty(store):
    put(store, "job/empty")
    assert store.size("job/empty") == 0
    assert store.read("job/empty").tobytes() == b""
    with pytest.raises(FormatError, match="found 0"):
        store.read("job/empty", 0, 1)


def test_what_is_not_there(store):
    assert store.size("job/nothing") is None
    for begin, nbytes in ((0, None), (0, 0), (3, 4)):
        with pytest.raises(MissingError, match="job/nothing: the file is missing"):
            store.read("job/nothing", begin, nbytes)
    store.remove("job/nothing")


def test_removed_and_cleared_by_folders(opened):
    store, other = opened("store"), opened("store2")
    for key in ("job/1", "job/2/3", "job/keep", "job2/1", "jo"):
        put(store, key, np.ones(1, np.uint8))
    put(other, "job/1", np.ones(2, np.uint8))
    store.remove("job/1")
    assert [store.size(key) for key in ("job/1", "job/keep")] == [None, 1]
    store.clear("job")
    assert [store.size(key) for key in ("job/2/3", "job/keep", "job2/1", "jo")] == [None, None, 1, 1]
    assert other.size("job/1") == 2
    store.clear("job")


@pytest.mark.parametrize("size", [10, 11 * MIB])
def test_an_aborted_writer_leaves_no_object(store, size):
    with pytest.raises(KeyError), store.writer("job/aborted") as out:
        out.write(np.ones(size, np.uint8))
        raise KeyError
    assert store.size("job/aborted") is None


def test_a_file_system_that_fails_when_a_file_is_closed(tmp_path, monkeypatch):
    """File systems of clusters say then what they could not write."""
    close = os.close

    def failing(fd: int) -> None:
        close(fd)
        raise OSError(errno.EIO, "Input/output error")

    store = Store(str(tmp_path))
    with pytest.raises(StorageError, match=r"job/closed: Input/output error"), store.writer("job/closed") as out:
        out.write(np.ones(9, np.uint8))
        monkeypatch.setattr(os, "close", failing)
    assert store.size("job/closed") is None


def test_the_first_claim_stands(store):
    assert store.put_if_absent("job/claim", b"first") == b"first"
    assert store.put_if_absent("job/claim", b"second") == b"first"
    assert store.read("job/claim").tobytes() == b"first"
    assert store.put_if_absent("job/empty", b"") == b""
    store.remove("job/claim")
    assert store.put_if_absent("job/claim", b"third") == b"third"


def test_one_thread_of_many_wins_a_claim(store):
    own = [b"%d" % thread * 100 for thread in range(8)]
    with ThreadPoolExecutor(8) as threads:
        for race in range(4):
            said = list(threads.map(lambda data, key=f"job/race-{race}": store.put_if_absent(key, data), own))
            assert len(set(said)) == 1
            assert said[0] in own
            assert store.read(f"job/race-{race}").tobytes() == said[0]


def test_urls_are_refused_without_what_may_be_secret():
    with pytest.raises(InputError, match="expected a directory, found scheme 'https'") as caught:
        Store("https://user:secret@host/bucket")
    assert "secret" not in str(caught.value)
