"""Checksums of the core beside those of Python's ``xxhash``."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash

from tiering import native


@pytest.mark.parametrize("page_bytes", [1, 240, 512, 4096, 65536])
def test_page_hashes(page_bytes: int) -> None:
    pages = np.random.default_rng(page_bytes).integers(0, 256, (7, page_bytes), dtype=np.uint8)
    expected = [xxhash.xxh3_64(page.tobytes()).intdigest() & 0xFFFFFFFF for page in pages]
    found = native.page_hashes(pages.reshape(-1), page_bytes)
    assert found.dtype == np.uint32
    assert found.tolist() == expected
    assert native.page_hashes(pages.reshape(-1)[:0], page_bytes).size == 0


@pytest.mark.parametrize("size", [0, 1, 999, 1000, 1001, 12345])
def test_block_hashes(size: int) -> None:
    data = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    expected = [xxhash.xxh3_64(data[at : at + 1000].tobytes()).intdigest() for at in range(0, size, 1000)]
    for threads in (1, 3):
        found = native.block_hashes(data, 1000, threads)
        assert found.dtype == np.uint64
        assert found.tolist() == expected


def test_arguments_that_do_not_fit() -> None:
    data = np.zeros(1000, np.uint8)
    with pytest.raises(ValueError, match="data: expected whole pages of 512 bytes, found 1000 bytes"):
        native.page_hashes(data, 512)
    with pytest.raises(ValueError, match="expected whole pages of 0 bytes"):
        native.page_hashes(data, 0)
    with pytest.raises(ValueError, match="block_bytes: expected at least 1, found 0"):
        native.block_hashes(data, 0)
    with pytest.raises(ValueError, match="threads: expected at least 1, found 0"):
        native.block_hashes(data, 10, 0)
