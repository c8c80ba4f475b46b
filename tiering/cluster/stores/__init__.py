"""Where tasks leave what they hand to each other: a directory that all machines mount, or a bucket of objects."""

from tiering.cluster.stores.store import ObjectWriter, Store, open_store, store_kind

__all__ = ["ObjectWriter", "Store", "open_store", "store_kind"]
