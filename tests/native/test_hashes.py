"""Checksums of the core beside those of Python's ``xxhash``."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash

from tiering import native


@pytest.mark.parametrize("page_bytes", [1, 240, 512, 4096, 65536])
def test_page_hashes(page_bytes):
    pages = np.random.default_rng(page_bytes).integers(0, 256, (7, page_bytes), dtype=np.uint8)
    expected = [xxhash.xxh3_64(page.tobytes()).intdigest() & 0xFFFFFFFF for page in pages]
    found = native.page_hashes(pages.reshape(-1), page_bytes)
    assert found.dtype == np.uint32
    assert found.tolist() == expected
    assert native.page_hashes(pages.reshape(-1)[:0], page_bytes).size == 0


def test_arguments_that_do_not_fit():
    data = np.zeros(1000, np.uint8)
    with pytest.raises(ValueError, match="data: expected whole pages of 512 bytes, found 1000 bytes"):
        native.page_hashes(data, 512)
    with pytest.raises(ValueError, match="expected whole pages of 0 bytes"):
        native.page_hashes(data, 0)
