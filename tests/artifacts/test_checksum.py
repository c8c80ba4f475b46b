"""Checksums: by any number of threads the same; any flipped bit, another."""

from __future__ import annotations

import numpy as np
import pytest
import xxhash

from tiering.artifacts import checksum


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(checksum, "BLOCK_BYTES", 16)


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 32, 100])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_file_and_definition_agree(tmp_path, size, threads):
    data = np.random.default_rng(size).bytes(size)
    (tmp_path / "x").write_bytes(data)
    digests = b"".join(xxhash.xxh3_64(data[i : i + 16]).digest() for i in range(0, size, 16))
    expected = "xxh3-64-b64m:" + xxhash.xxh3_64(digests).hexdigest()
    assert checksum.checksum_file(tmp_path / "x", threads) == expected


def test_sampled_digest_sees_size_and_ends(tmp_path):
    file = tmp_path / "x"
    file.write_bytes(bytes(100_000))
    first = checksum.sampled_digest(file)
    for change in (bytes(100_001), b"\1" + bytes(99_999), bytes(99_999) + b"\1"):
        file.write_bytes(change)
        assert checksum.sampled_digest(file) != first
