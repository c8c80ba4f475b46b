"""Where tasks leave what they hand to each other: a directory that all machines mount."""

from tiering.cluster.stores.posix import PosixStore
from tiering.cluster.stores.store import ObjectWriter, Store
from tiering.errors import InputError

__all__ = ["ObjectWriter", "Store", "check_store", "open_store"]


def check_store(path: str) -> None:
    """Refuse a store that is named as a URL."""
    scheme, separator, _ = path.partition("://")
    if separator:
        raise InputError(f"store: expected a directory, found scheme {scheme!r}; give one that all machines mount")


def open_store(path: str) -> Store:
    """Return the store in a directory."""
    check_store(path)
    return PosixStore(path)
