"""Folders of object stores, on a simulated S3."""

from __future__ import annotations

from tiering.artifacts.remote import RemoteFolder


def test_files_are_written_listed_read_and_removed(s3: str) -> None:
    folder = RemoteFolder(f"{s3}/data")
    assert folder.files() == {}
    folder.write("inner/a.bin", [b"01234", b"56789"])
    assert folder.files() == {"inner/a.bin": 10}
    assert folder.read("inner/a.bin", 3, 7).tobytes() == b"3456"
    before = folder.state("inner/a.bin")
    folder.write("inner/a.bin", [b"0123456780"])
    assert folder.state("inner/a.bin") != before
    folder.remove("inner/a.bin")
    assert folder.size("inner/a.bin") is None
