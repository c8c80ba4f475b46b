"""What is at a path: a file, nothing, or something that is refused by its name."""

import os
import stat
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tiering.artifacts.storage import entries, file_exists, is_folder, require_file
from tiering.errors import InputError, MissingError


def test_files_and_nothing(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    assert file_exists(tmp_path / "file", "x") and file_exists(tmp_path / "link", "x")
    for absent in ("nothing", "file/inside", "nowhere/at/all"):
        assert not file_exists(tmp_path / absent, "x")
        assert not is_folder(tmp_path / absent)
        with pytest.raises(MissingError, match="expected edges, found nothing"):
            require_file(tmp_path / absent, "edges")
    assert is_folder(tmp_path) and not is_folder(tmp_path / "file")
    assert entries(tmp_path) == [tmp_path / "file", tmp_path / "link"]


def test_what_is_no_file(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.mknod(tmp_path / "socket", stat.S_IFSOCK | 0o600)
    (tmp_path / "dead").symlink_to("nowhere")
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "device").symlink_to("/dev/null")
    (tmp_path / "folder").mkdir()
    found = {
        "pipe": "found a pipe; save",
        "socket": "found a socket; save",
        "device": "found a device; save",
        "folder": "found a directory; check",
        "dead": "found a symbolic link to nowhere, which does not exist; restore",
        "loop": "found a symbolic link in a circle; restore",
    }
    for name, words in found.items():
        with pytest.raises(InputError, match=f"{name}: expected labels, a regular file, {words}"):
            file_exists(tmp_path / name, "labels")
    for name in ("dead", "loop"):
        with pytest.raises(InputError, match=f"{name}: expected a directory, found a symbolic link"):
            is_folder(tmp_path / name)
    with pytest.raises(InputError, match="expected labels, a regular file, found: File name too long"):
        file_exists(tmp_path / ("x" * 300), "labels")


@pytest.fixture
def nobody():
    """A folder that all may enter; root reads everything, and is somebody else for as long."""
    with TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        me = os.geteuid()
        yield Path(name)
        os.seteuid(me)


def test_what_may_not_be_read(nobody):
    (nobody / "secret").write_text("x")
    (nobody / "secret").chmod(0)
    (nobody / "closed").mkdir()
    (nobody / "closed").chmod(0)
    if os.geteuid() == 0:
        os.seteuid(65534)
    with pytest.raises(InputError, match="secret: expected labels, a regular file, found one without read permission"):
        file_exists(nobody / "secret", "labels")
    with pytest.raises(InputError, match="found: Permission denied"):
        file_exists(nobody / "closed" / "inside", "labels")
    with pytest.raises(InputError, match="closed: expected a directory to read, found: Permission denied"):
        entries(nobody / "closed")
