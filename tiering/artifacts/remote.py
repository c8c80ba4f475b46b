"""Folders of object stores and other remote file systems, which pyarrow opens by URL."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tiering.artifacts.storage import Bytes
from tiering.errors import CapabilityError, InputError, MissingError, StorageError
from tiering.text.arguments import is_url as is_url

_CREDENTIALS = "give credentials by the environment, a profile or the machine's role, as for the cloud's own clients"
_DENIED = re.compile(
    r"ACCESS_DENIED|\b40[13]\b|FORBIDDEN|UNAUTHORIZED|INVALID_(ACCESS_KEY|CLIENT_TOKEN|SIGNATURE)|SIGNATURE_DOES_NOT|"
    r"EXPIRED_TOKEN|UNRECOGNIZED_CLIENT|credential|PERMISSION_DENIED|Permission denied", re.I,
)  # fmt: skip
_WINDOW = 64 << 20  # bytes of a file being written that may be under way
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|bucket.*(does not exist|not found)|ContainerNotFound", re.I)


class RemoteFolder:
    """A folder of a remote file system by its URL, such as ``s3://bucket/folder?region=eu-west-1``.

    Names are relative paths inside the folder; the methods may be called from several threads. `url` is the URL without
    its query. `InputError`: the URL is malformed, holds credentials or has an unknown scheme; `CapabilityError`: there
    is no support for such file systems here. Every method raises `MissingError` for what is missing, and `StorageError`
    where the store refuses access or fails. Cost: without ``region``, one request to S3 finds the bucket's
    region at once; all other requests are made by the methods.
    """

    def __init__(self, url: str) -> None:
        scheme, place = url.partition("://")[::2]
        host = place.partition("/")[0]
        if "@" in host and (not scheme.startswith("abfs") or ":" in host.partition("@")[0]):
            raise InputError(f"{scheme}://: the address has credentials, which could end up in logs; {_CREDENTIALS}")
        self.address, self.url = url, url.partition("?")[0].rstrip("/")
        self._system, self._root = self._open(url)

    def _open(self, url: str) -> tuple[Any, str]:
        from pyarrow import ArrowException
        from pyarrow.fs import FileSystem

        try:
            with remote_errors(self.url):
                system, root = FileSystem.from_uri(url)
        except (ArrowException, InputError, ImportError) as error:
            text = str(error.__cause__ or error).splitlines()[0]
            if "Unrecognized filesystem" in text:
                text = "the scheme is unknown; known are s3, gs, abfs and others of this pyarrow"
            raise InputError(f"{self.url}: cannot be opened: {text}") from error
        except StorageError as error:
            raise CapabilityError(f"{self.url}: pyarrow cannot open this file system here: {error}") from error
        if not root.strip("/"):
            raise InputError(f"{self.url}: expected a bucket, as in s3://bucket/folder")
        return system, root.rstrip("/")

    def join(self, name: str) -> str:
        """Return the URL of a file in the folder, for messages and records."""
        return f"{self.url}/{name}" if name else self.url

    def files(self) -> dict[str, int]:
        """Return the bytes of all files in the folder and those inside it, by name. Cost: a request per 1,000."""
        from pyarrow.fs import FileSelector, FileType

        with remote_errors(self.url):
            found = self._system.get_file_info(FileSelector(self._root, allow_not_found=True, recursive=True))
        own = len(self._root) + 1
        return {one.path[own:]: int(one.size) for one in found if one.type == FileType.File}

    def size(self, name: str = "") -> int | None:
        """Return the bytes of a file; ``None`` if there is no such file. Cost: one request."""
        from pyarrow.fs import FileType

        with remote_errors(self.join(name)):
            found = self._system.get_file_info(self._path(name))
        return int(found.size) if found.type == FileType.File else None

    def state(self, name: str = "") -> str:
        """Return what changes with the content of a file: its size and ETag, or its time of modification."""
        with remote_errors(self.join(name)):
            info = self._system.get_file_info(self._path(name))
            with self._system.open_input_stream(self._path(name), compression=None) as stream:
                known = {key.decode().lower(): value.decode() for key, value in _metadata(stream).items()}
        version = known.get("etag") or known.get("generation") or str(info.mtime_ns)
        return f"{info.size} bytes, {version.strip(chr(34))}"

    def open(self, name: str = "") -> Any:
        """Open a file as a ``pyarrow.NativeFile``, to be read anywhere; its own errors are of `remote_errors`."""
        with remote_errors(self.join(name)):
            return self._system.open_input_file(self._path(name))

    def read(self, name: str, begin: int = 0, end: int | None = None) -> Bytes:
        """Return bytes [begin, end) of a file, by default all; `StorageError` if it ends before."""
        with self.open(name) as file:
            return read_range(file, self.join(name), begin, file.size() if end is None else end)

    def write(self, name: str, pieces: Iterable[Bytes | bytes]) -> None:
        """Write a file whole, in pieces, each in parallel parts; what was there is replaced, perhaps by a cut file."""
        waiting, path = 0, self._path(name)
        with remote_errors(self.join(name)), self._system.open_output_stream(path, compression=None) as stream:
            for piece in pieces:
                stream.write(piece)
                waiting += len(piece)
                if waiting >= _WINDOW:  # parts under way take memory, and a flush waits for them
                    stream.flush()
                    waiting = 0

    def clear(self) -> None:
        """Remove all files in the folder."""
        with remote_errors(self.url):
            self._system.delete_dir_contents(self._root, missing_dir_ok=True)

    def remove(self, name: str) -> None:
        """Remove a file, if it is there."""
        if self.size(name) is not None:
            with remote_errors(self.join(name)):
                self._system.delete_file(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._root}/{name}" if name else self._root


def _metadata(stream: Any) -> dict[bytes, bytes]:
    return {key.encode() if isinstance(key, str) else key: value for key, value in (stream.metadata() or {}).items()}


def read_range(file: Any, name: str, begin: int, end: int) -> Bytes:
    """Return bytes [begin, end) of a file of `RemoteFolder.open`; `StorageError` if it ends before."""
    with remote_errors(name):
        data = file.read_at(end - begin, begin)
    if len(data) != end - begin:
        raise StorageError(errno.EIO, f"{name}: ends at byte {begin + len(data)}, but {end} bytes were expected")
    return np.frombuffer(data, np.uint8)


@contextmanager
def remote_errors(name: str) -> Iterator[None]:
    """Turn errors of pyarrow's file systems into errors of this package that name a URL."""
    try:
        yield
    except (MissingError, StorageError, InputError):
        raise
    except FileNotFoundError as error:
        raise MissingError(f"{name}: no such object; check the address") from error
    except ValueError as error:
        raise InputError(f"{name}: is not the address of a file ({error}); correct it") from error
    except OSError as error:
        text = " ".join(str(error).split("(Request ID")[0].split())
        text = text if len(text) <= 300 else f"{text[:300]}.."
        if _NO_BUCKET.search(text):
            bucket = "/".join(name.split("/")[:3])
            raise MissingError(f"{name}: there is no bucket {bucket}; check its name and region ({text})") from error
        if _DENIED.search(text):
            raise StorageError(errno.EACCES, f"{name}: the store refuses access ({text}); {_CREDENTIALS}") from error
        raise StorageError(error.errno or errno.EIO, f"{name}: {text}; run the same command again") from error
