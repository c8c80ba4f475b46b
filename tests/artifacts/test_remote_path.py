"""Remote paths beside local ones, their bytes in many ranges, and copies of them in a directory of some size."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from object_store import upload

from tiering.artifacts import remote_path
from tiering.artifacts.remote import RemoteFolder
from tiering.artifacts.remote_cache import RemoteCache
from tiering.artifacts.remote_path import RemotePath, as_path, open_remote
from tiering.errors import InputError, MissingError

CONTENT = bytes(range(256)) * 3


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A directory with files at several depths."""
    for name in ("a.csv", "empty.txt", "inner/b.parquet", "inner/deep/c.npy", "inner/.hidden"):
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(b"" if name == "empty.txt" else CONTENT)
    return tmp_path / "tree"


def relative(paths: Iterable[Path], folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in paths)


def test_remote_paths_answer_as_local_ones(tree: Path, s3: str) -> None:
    local, remote = tree, open_remote(upload(tree, s3))
    assert str(remote) == f"{s3}/tree"
    for name in ("", "a.csv", "empty.txt", "inner", "inner/deep", "inner/deep/c.npy", "no", "a.csv/no", "inner/n"):
        one, other = local / name, remote / name
        assert (one.exists(), one.is_dir(), one.is_file()) == (other.exists(), other.is_dir(), other.is_file()), name
        if one.is_file():
            assert other.stat().st_size == one.stat().st_size
            assert other.read_bytes() == one.read_bytes()
        for pattern in (None, "*", "*.csv", "deep/*.npy"):
            if one.is_dir():
                found, wanted = (p.iterdir() if pattern is None else p.glob(pattern) for p in (other, one))
                assert relative(found, remote) == relative(wanted, local), (name, pattern)
                assert relative(other.rglob("*"), remote) == relative(one.rglob("*"), local)
    with pytest.raises(FileNotFoundError):
        (remote / "no").stat()
    assert remote.absolute() is remote.resolve() is remote
    assert as_path(str(remote / "a.csv")) == remote / "a.csv"
    assert type(as_path("a/b")) is type(Path())


def test_a_look_above_what_was_opened_lists_nothing(tree: Path, s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    remote = open_remote(upload(tree, s3))
    monkeypatch.setattr(RemoteFolder, "files", lambda self: pytest.fail("lists a bucket"))
    assert [*remote.parent.glob("*")] == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(
    steps=st.lists(st.tuples(st.integers(0, 800), st.integers(0, 300)), min_size=1, max_size=12),
    first=st.integers(1, 20), longest=st.integers(1, 200), ahead=st.integers(1, 4), buffered=st.booleans(),
)  # fmt: skip
def test_bytes_in_ranges_are_those_of_the_file(
    s3: str, steps: list[tuple[int, int]], first: int, longest: int, ahead: int, buffered: bool
) -> None:
    RemoteFolder(s3).write("file", [CONTENT])
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("_FIRST_BYTES", first), ("RANGE_BYTES", longest), ("RANGES", ahead)):
            patch.setattr(remote_path, name, value)
        with open_remote(f"{s3}/file").open("rb", -1 if buffered else 0) as file:
            for position, count in steps:
                file.seek(position)
                assert file.read(count) == CONTENT[position : position + count]
                assert file.tell() == max(position, min(len(CONTENT), position + count))
            file.seek(-5, os.SEEK_END)
            assert file.read() == CONTENT[-5:]
            assert file.read(4) == b""


def copies(folder: Path) -> list[str]:
    return sorted(path.name[33:] for path in folder.iterdir() if len(path.name) > 33)


def test_what_the_system_opens_is_copied_once(
    tree: Path, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder = upload(tree, s3), tmp_path / "cache"
    path = open_remote(url, RemoteCache(folder)) / "a.csv"
    local = Path(os.fspath(path))
    assert local.read_bytes() == path.read_bytes() == CONTENT
    assert path.samefile(local)
    assert copies(folder) == ["a.csv"]
    with monkeypatch.context() as patch:
        patch.setattr(RemotePath, "open", lambda *_: pytest.fail("reads it again"))
        assert os.fspath(open_remote(url, RemoteCache(folder)) / "a.csv") == str(local)
    RemoteFolder(url).write("a.csv", [b"other"])
    assert Path(os.fspath(open_remote(url, RemoteCache(folder)) / "a.csv")).read_bytes() == b"other"
    assert copies(folder) == ["a.csv", "a.csv"]
    assert os.fspath(path.parent) == url  # a folder: nothing that the system could open


def test_a_copy_has_a_short_name_with_the_suffix(s3: str, tmp_path: Path) -> None:
    RemoteFolder(s3).write("a" * 300 + ".csv.gz", [CONTENT])
    local = Path(os.fspath(open_remote(f"{s3}/{'a' * 300}.csv.gz", RemoteCache(tmp_path))))
    assert local.read_bytes() == CONTENT
    assert local.name.endswith("a.csv.gz")


def test_no_cache(tree: Path, s3: str) -> None:
    with pytest.raises(
        InputError, match=r"a\.csv: needs a local copy of 768 B \(all files of .*: 3 KiB\); .* cache=DIR"
    ):
        os.fspath(open_remote(upload(tree, s3)) / "a.csv")


def test_a_cache_stays_within_its_size(tree: Path, s3: str, tmp_path: Path) -> None:
    url, folder = upload(tree, s3), tmp_path / "cache"
    folder.mkdir()
    (folder / "users-own").write_bytes(CONTENT)

    def copy(*names: str, limit: int = 2 * len(CONTENT)) -> None:
        source = open_remote(url, RemoteCache(folder, limit))
        for name in names:
            assert Path(os.fspath(source / name)).read_bytes() == CONTENT

    copy("a.csv")
    copy("inner/b.parquet")
    copy("a.csv")  # the other one is older now
    copy("inner/deep/c.npy")
    assert copies(folder) == ["a.csv", "c.npy"]
    copy("inner/b.parquet", "inner/deep/c.npy")  # which its own import uses: not to be removed
    assert copies(folder) == ["b.parquet", "c.npy"]
    with pytest.raises(
        InputError, match=r"c\.npy: the cache of 1 KiB is too small: .* needs 1\.5 KiB of copies; .*1536"
    ):
        copy("inner/b.parquet", "inner/deep/c.npy", limit=1024)
    assert (folder / "users-own").read_bytes() == CONTENT


def test_a_file_that_changes_while_it_is_copied(
    tree: Path, s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, folder, before = upload(tree, s3), tmp_path / "cache", RemotePath.open

    def change(path: RemotePath, *options: Any) -> Any:
        file = before(path, *options)
        RemoteFolder(url).write("a.csv", [CONTENT[::-1]])
        return file

    monkeypatch.setattr(RemotePath, "open", change)
    with pytest.raises(InputError, match=r"a\.csv: changed while it was read \(from 768 bytes, .* to 768 bytes, "):
        os.fspath(open_remote(url, RemoteCache(folder)) / "a.csv")
    assert copies(folder) == []


def test_a_bucket_that_is_not_there(s3: str) -> None:
    assert not open_remote(f"{s3}-other/tree").exists()
    with pytest.raises(InputError, match="is not the address of a file"):
        open_remote(f"{s3}/a//b")
    with pytest.raises(MissingError):
        open_remote(f"{s3}/a").open()
