"""The interface of a store: whole objects under keys, which are written once and never change."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]


class ObjectWriter(Protocol):
    """An object being written, front to back; a context manager.

    The object is there and whole, for every machine, once the context has ended well; after an error it is not there,
    or is something that nothing refers to. A power cut may take it: what matters has checksums.
    """

    def write(self, data: np.ndarray[Any, Any]) -> None:
        """Append the bytes of a contiguous array."""

    def __enter__(self) -> ObjectWriter: ...

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: TracebackType | None) -> None: ...


class Store(Protocol):
    """Objects under keys: names with ``/`` between parts, of letters, digits, ``_ + . -``.

    Every failure of the storage is a `StorageError` that names the store and the key; an object that is not there is
    a `MissingError`.
    """

    @property
    def url(self) -> str:
        """What `open_store` opens it again by, in any process of any machine."""

    def size(self, key: str) -> int | None:
        """Bytes of an object; ``None`` if it is not there."""

    def read(self, key: str, begin: int = 0, nbytes: int | None = None) -> Bytes:
        """Bytes of an object, shape (nbytes,); up to its end unless told.

        `FormatError` if it ends before.
        """

    def writer(self, key: str, nbytes: int) -> ObjectWriter:
        """Begin an object under a key that nobody else uses; of about `nbytes`, 0 where that is not known."""

    def claim(self, key: str, data: bytes) -> bytes:
        """Put a small object unless there is one; what is there then, `data` or what another put before.

        Of several processes that claim a key at once, on any machines, exactly one puts its own.
        """

    def remove(self, key: str) -> None:
        """Remove an object, if it is there."""

    def clear(self, folder: str) -> None:
        """Remove all objects whose keys begin with ``folder/``; they are nobody's any more."""
