"""A store in a bucket of S3, or of a server that speaks its protocol (MinIO, Ceph).

By ``obstore``, whose core is compiled: it has conditional puts (``If-None-Match: *``), ranges, uploads in parts that an
error aborts, and retries with back-off. ``botocore`` finds credentials where every program of AWS does.
"""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta, timezone
from functools import lru_cache
from types import TracebackType
from typing import Any

import botocore.session
import numpy as np
import obstore
import obstore.store
from botocore.exceptions import BotoCoreError
from obstore.exceptions import AlreadyExistsError, BaseError, GenericError

from tiering.cluster.stores.store import Bytes
from tiering.errors import FormatError, InputError, MissingError, StorageError

PART_BYTES = 16 << 20
"""Bytes of a request when a large object is read or written; S3 takes no part below 5 MiB but the last."""
RETRIES = 10
"""Of a request that fails with 5xx, a time-out or a lost connection."""
_TOGETHER = 4
"""Requests side by side, of a read or of a writer: they and one more hold `PART_BYTES` of memory each."""
_MOST_PARTS = 10_000
"""Parts of an upload, by the rules of S3."""
_CLAIMS = 8
"""Times that a claim is tried anew when its object has vanished between the refusal and the look."""
_TIMEOUT = timedelta(minutes=2)
"""Of one request; a part that takes longer has no use."""
_PATIENCE = timedelta(minutes=3)
"""After so long since a request began it is not repeated any more."""
_UNANSWERED = 3
"""Times that a conditional put is made of which no answer comes."""
_CREDENTIALS = timedelta(minutes=10)
"""How long credentials may be used before botocore is asked again; it renews those with less than this left."""
_FAILED = (BaseError, OSError)
"""What obstore raises: its own errors, and OSError where it plays a file."""

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_SEGMENT = re.compile(r"[A-Za-z0-9_+.=-]+")
_owner = 0
"""Process that uses obstore, whose threads a fork leaves behind; 0 while none has begun."""
_proven: set[tuple[str, str]] = set()
"""Endpoints and buckets that refused a second put under a key of this process."""


class S3Store:
    """Objects of a bucket under a prefix; a claim is a put that the server refuses where there is an object.

    Parameters
    ----------
    url : str
        ``s3://bucket/prefix``. Credentials, region and endpoint come from the environment (``AWS_ACCESS_KEY_ID``,
        ``AWS_REGION``, ``AWS_ENDPOINT_URL``, ...), the profile, or the role of the machine.
    part_bytes : int
        Bytes of a request; more for objects that would have over 10,000 parts.
    retries : int
        Of a request; they end three minutes after it began.
    """

    def __init__(self, url: str, *, part_bytes: int = PART_BYTES, retries: int = RETRIES) -> None:
        self._bucket, self._prefix = parse_url(url)
        self.part_bytes, self.retries = part_bytes, retries
        with self._failures(""):
            session = botocore.session.get_session()
            self._endpoint = _endpoint(session)
            region = os.environ.get("AWS_REGION") or session.get_config_variable("region") or ""
            self._objects = _client(self._bucket, self._prefix, self._endpoint, region, retries)

    @property
    def url(self) -> str:
        return "/".join(filter(None, ("s3:/", self._bucket, self._prefix)))

    def __repr__(self) -> str:
        return f"S3Store({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled by its URL: what another process may do, its own credentials say."""
        return _opened, (self.url, self.part_bytes, self.retries)

    def size(self, key: str) -> int | None:
        with self._failures(key):
            try:
                return int(obstore.head(self._client, key)["size"])
            except FileNotFoundError:
                return None

    def read(self, key: str, begin: int = 0, nbytes: int | None = None) -> Bytes:
        with self._failures(key):
            first, size = self._first(key, begin, self.part_bytes if nbytes is None else min(nbytes, self.part_bytes))
            wanted = max(0, size - begin) if nbytes is None else nbytes
            if begin + wanted > size:
                raise FormatError(f"{self.url}/{key}: expected at least {begin + wanted} bytes, found {size}")
            out = np.empty(wanted, np.uint8)
            out[: len(first)] = first
            starts = range(len(first), wanted, self.part_bytes)
            if len(starts):
                with ThreadPoolExecutor(_TOGETHER) as threads:
                    list(threads.map(lambda at: self._fill(key, begin + at, out[at : at + self.part_bytes]), starts))
            return out

    def writer(self, key: str, nbytes: int) -> S3Writer:
        return S3Writer(self, key, max(self.part_bytes, -(-nbytes // _MOST_PARTS)))

    def claim(self, key: str, data: bytes) -> bytes:
        self._require_claims(key)
        for _ in range(_CLAIMS):
            with self._failures(key):
                if self._put_first(key, data):
                    return data
            with suppress(MissingError):
                return self.read(key).tobytes()
        raise StorageError(
            errno.EBUSY,
            f"{self.url}/{key}: is put and removed again and again; is another job using this store's prefix?",
        )

    def remove(self, key: str) -> None:
        with self._failures(key), suppress(FileNotFoundError):
            obstore.delete(self._client, key)

    def clear(self, folder: str) -> None:
        with self._failures(folder):
            for page in obstore.list(self._client, folder, chunk_size=1000):
                obstore.delete(self._client, [entry["path"] for entry in page])

    @property
    def _client(self) -> obstore.store.S3Store:
        if os.getpid() != _owner:
            raise StorageError(
                errno.ENOTSUP,
                f"{self.url}: this process was forked from one that uses S3, whose connections it does not have; "
                "start processes by the method spawn or forkserver",
            )
        return self._objects

    def _first(self, key: str, begin: int, nbytes: int) -> tuple[Bytes, int]:
        """The first bytes of a range, at most so many, and the size of the object.

        HTTP has no empty ranges, and refuses with 416 those that begin at the end: only the size is asked for then.
        """
        if nbytes:
            try:
                got = obstore.get(self._client, key, options={"range": (begin, begin + nbytes)})
                return np.frombuffer(got.bytes(), np.uint8), int(got.meta["size"])
            except BaseError as error:
                if _status(error) != 416:
                    raise
        return np.empty(0, np.uint8), int(obstore.head(self._client, key)["size"])

    def _fill(self, key: str, begin: int, out: Bytes) -> None:
        got = np.frombuffer(obstore.get_range(self._client, key, start=begin, length=len(out)), np.uint8)
        if len(got) != len(out):
            raise OSError(errno.EIO, f"ends at byte {begin + len(got)} while it is read")
        out[:] = got

    def _put_first(self, key: str, data: bytes, tries: int = _UNANSWERED) -> bool:
        """Put an object unless there is one; whether this call did, as far as the server's answer came.

        obstore does not repeat such a put when no answer came, lest it refuse itself; who claims looks whose it is.
        """
        try:
            obstore.put(self._client, key, data, mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        except GenericError as error:
            if _status(error) or min(tries, self.retries + 1) == 1:
                raise
            return self._put_first(key, data, tries - 1)
        return True

    def _require_claims(self, key: str) -> None:
        """Refuse a server on which every claim would win: it must not put a key twice. Once in a process."""
        if (self._endpoint, self._bucket) in _proven:
            return
        probe = f"{key}.probe-{uuid.uuid4().hex}"
        with self._failures(probe):
            self._put_first(probe, b"")
            refused = not self._put_first(probe, b"")
            obstore.delete(self._client, probe)
        if not refused:
            raise StorageError(
                errno.EOPNOTSUPP,
                f"{self.url}: this server puts an object over another in spite of If-None-Match: *, which claims need; "
                "use a version that honours it, or a directory that all machines mount",
            )
        _proven.add((self._endpoint, self._bucket))

    @contextmanager
    def _failures(self, key: str) -> Iterator[None]:
        """Make errors of this package of the libraries' own; those are not shown, as they may quote what was signed."""
        where = f"{self.url}/{key}".rstrip("/")
        try:
            yield
        except (FormatError, MissingError, StorageError, InputError):
            raise
        except FileNotFoundError as error:
            if "NoSuchBucket" not in str(error):
                raise MissingError(f"{where}: no such object; was the store cleared while a job used it?") from None
            raise StorageError(errno.ENOENT, f"{where}: there is no such bucket; make it, or correct the URL") from None
        except (*_FAILED, BotoCoreError) as error:
            raise _storage_error(where, error) from None


class S3Writer:
    """An object being written: in one put if it is small, else in parts; an error aborts the upload."""

    def __init__(self, store: S3Store, key: str, part_bytes: int) -> None:
        self._store, self._key, self._part = store, key, part_bytes
        self._file = obstore.open_writer(store._client, key, buffer_size=part_bytes, max_concurrency=_TOGETHER)

    def write(self, data: np.ndarray[Any, Any]) -> None:
        view = np.ascontiguousarray(data).reshape(-1).view(np.uint8).data
        with self._store._failures(self._key):
            for at in range(0, len(view), self._part):
                self._file.write(bytes(view[at : at + self._part]))  # sent later: the caller may have changed its own

    def __enter__(self) -> S3Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None:
        if kind is None:
            with self._store._failures(self._key):
                self._file.close()
        else:
            with suppress(*_FAILED):  # parts that stay behind are no object; the error on its way says more
                self._file.__exit__(kind, value, trace)


def parse_url(url: str) -> tuple[str, str]:
    """Bucket and prefix of ``s3://bucket/prefix``; messages never show what may be a secret."""
    rest = url.removeprefix("s3://")
    expected = "store: expected s3://bucket/prefix"
    if "@" in rest or ":" in rest:
        raise InputError(f"{expected}, found user info or a port in it; give credentials by AWS_PROFILE or the "
                         "environment, and a server by AWS_ENDPOINT_URL")  # fmt: skip
    if "?" in rest or "#" in rest:
        raise InputError(f"{expected}, found a query in it; give credentials, region and endpoint by the environment")
    bucket, _, prefix = rest.rstrip("/").partition("/")
    if not _NAME.fullmatch(bucket):
        raise InputError(f"{expected}, found bucket {bucket!r}")
    for segment in prefix.split("/") if prefix else ():
        if not _SEGMENT.fullmatch(segment) or segment in (".", ".."):
            raise InputError(f"{expected}, with letters, digits and _ + . = - between slashes; found {segment!r} in it")
    return bucket, prefix


def _opened(url: str, part_bytes: int, retries: int) -> S3Store:
    return S3Store(url, part_bytes=part_bytes, retries=retries)


def _endpoint(session: botocore.session.Session) -> str:
    """Where the server is, as AWS's own programs are told; empty: AWS itself."""
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
    found = next(filter(None, map(os.environ.get, names)), "") or session.get_scoped_config().get("endpoint_url", "")
    if not re.fullmatch(r"(https?://[^@?#\s]+)?", found):
        raise InputError("endpoint of S3 (AWS_ENDPOINT_URL): expected http://host:port or https://host, no user info")
    return str(found).rstrip("/")


@lru_cache(maxsize=64)
def _client(bucket: str, prefix: str, endpoint: str, region: str, retries: int) -> obstore.store.S3Store:
    """Connections and credentials, which all stores of a process at one place share: every task opens its store."""
    global _owner
    _owner = _owner or os.getpid()
    credentials = botocore.session.get_session().get_credentials()
    if credentials is None:
        raise StorageError(
            errno.EACCES,
            f"s3://{bucket}: no credentials found; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or "
            "give the machine a role",
        )

    def provide() -> Any:
        frozen = credentials.get_frozen_credentials()
        return {
            "access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key, "token": frozen.token,
            "expires_at": datetime.now(timezone.utc) + _CREDENTIALS,
        }  # fmt: skip

    known: dict[str, Any] = {name: value for name, value in (("endpoint", endpoint), ("region", region)) if value}
    return obstore.store.S3Store(
        bucket,
        prefix=prefix or None,
        credential_provider=provide,
        conditional_put="etag",
        client_options={
            "allow_http": endpoint.startswith("http://"), "connect_timeout": timedelta(seconds=10),
            "timeout": _TIMEOUT,
        },
        retry_config={"max_retries": retries, "retry_timeout": _PATIENCE},
        **known,
    )  # fmt: skip


def _status(error: Exception) -> int:
    """The status of HTTP that a request ended with; 0 if there was no answer."""
    found = re.search(r"status code: (\d{3})", str(error))
    return int(found[1]) if found else 0


def _storage_error(where: str, error: Exception) -> StorageError:
    status = _status(error)
    name = re.search(r"<Code>(\w+)</Code>", str(error))
    what = f"the server answered {status}{f' {name[1]}' if name else ''}"
    if status in (401, 403):
        return StorageError(errno.EACCES, f"{where}: {what}; credentials or policy do not allow it to read, put, "
                            "list and delete objects there")  # fmt: skip
    if 300 <= status < 500 and status != 429:
        return StorageError(errno.EIO, f"{where}: {what}; check the bucket, its region (AWS_REGION) and the endpoint "
                            "(AWS_ENDPOINT_URL)")  # fmt: skip
    if status == 501:
        return StorageError(errno.EOPNOTSUPP, f"{where}: {what}; this server lacks a part of S3 that stores need: use "
                            "a newer version, or a directory that all machines mount")  # fmt: skip
    if status:
        return StorageError(errno.EIO, f"{where}: {what}, after all retries; run the same command again, with fewer "
                            "tasks side by side if the server is overloaded")  # fmt: skip
    said = str(error).partition("\n")[0].rpartition(" - ")[2][:200]
    return StorageError(errno.EIO, f"{where}: {said}; check the endpoint (AWS_ENDPOINT_URL), the network and the "
                        "credentials, then run the same command again")  # fmt: skip
