"""Numpy files that an import must refuse: headers that lie, values that do not fit."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from cases import FILES, Case, damaged, saved, zipped
from small_inputs import EDGES, NODES

I64 = np.int64


def npy(shape: str, descr: str = "'<i8'", data: bytes = b"", fortran: object = False, version: int = 1) -> bytes:
    """A numpy file with whatever header."""
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + data


HEADERS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "cut in the header": (saved(np.zeros(8))[:40], "header"),
    "huge shape": (npy("(2, 1000000000000000)"), "truncated"),
    "shape whose product overflows": (npy("(4294967296, 4294967296)"), "4294967296"),
    "nothing of huge rows": (npy("(0, 9223372036854775807)"), "9223372036854775807"),
    "sizes of 4000 digits": (npy(f"({'9' * 4000}, {'9' * 4000})"), "shape"),
    "10000 axes": (npy(f"({'1,' * 10_000})"), "shape"),
    "negative sizes with a positive product": (npy("(-2, -6)", data=bytes(96)), "-2"),
    "nested": (npy("(" * 3000), "header"),
    "an expression": (npy("(__import__('os').getpid(),)"), "header"),
    "fields": (npy("(8,)", "[('a', '<i4'), ('b', '<f4')]", bytes(64)), "dtype"),
    "long doubles": (saved(np.zeros(8, np.longdouble)), "float128"),
    "three axes": (saved(np.zeros((2, 2, 2), I64)), "(2, 2, 2)"),
    "version 9": (npy("(8,)", version=9), "version"),
    "header of 10 MB": (b"\x93NUMPY\2\0" + (10**7).to_bytes(4, "little") + b"{" + b" " * 10**7, "header"),
    "npz": (zipped(np.zeros(8)), "archive"),
    "gzip": (zlib.compress(saved(np.zeros(8)), wbits=31), "header"),
    "text": (b"0 1\n1 2\n", "header"),
}


def headers() -> Iterator[Case]:
    """Each numpy file with each header."""
    for kind in ("npy", "igb"):
        for file in FILES[kind]:
            for what, (data, word) in HEADERS.items():
                if not file.endswith(".npy") or (kind == "igb" and file.endswith("label_19.npy")):
                    continue  # raw labels are usual there: `VALUES` has them
                make = damaged(kind, file, lambda path, data=data: path.write_bytes(data))
                yield Case(f"{kind}: {file}: {what}", make, (Path(file).name, word))


def ids(*values: object, dtype: object = I64) -> np.ndarray[Any, Any]:
    return np.array(values, dtype)


def edges(*values: int) -> np.ndarray[Any, Any]:
    return np.resize(ids(*values), (2, EDGES))


VALUES: tuple[tuple[str, str, np.ndarray[Any, Any], str], ...] = (
    ("edges as uint8", "edge_index.npy", np.zeros((2, EDGES), np.uint8), "uint8"),
    ("the largest id there is", "edge_index.npy", edges(0, 2**63 - 1), str(2**63 - 1)),
    ("the least id there is", "edge_index.npy", edges(0, -(2**63)), str(-(2**63))),
    ("weights inf", "edge_weight.npy", np.full(EDGES, np.inf, np.float16), "inf"),
    ("weights as booleans", "edge_weight.npy", np.ones(EDGES, bool), "bool"),
    ("weights of two columns", "edge_weight.npy", np.ones((EDGES, 2)), "(12, 2)"),
    ("types beyond int64", "edge_type.npy", np.full(EDGES, 2**63, np.uint64), str(2**63)),
    ("edge ids beyond int64", "edge_id.npy", np.full(EDGES, 2**64 - 1, np.uint64), str(2**64 - 1)),
    ("no features", "node_feat.npy", np.zeros((0, 2)), "0"),
    ("labels beyond", "node_label.npy", np.full(NODES, 2.0**40), "1099511627776"),
    ("labels of no row", "node_label.npy", np.zeros((0, 2, 1), I64), "(0, 2, 1)"),
    ("a split of two columns", "train_idx.npy", np.arange(4).reshape(2, 2), "(2, 2)"),
    ("a mask of two columns", "val_idx.npy", np.ones((NODES // 2, 2), bool), "column 0: expected a mask of 8"),
)


def values() -> Iterator[Case]:
    """Sound numpy files whose values do not fit."""
    for what, file, array, word in VALUES:
        make = damaged("npy", file, lambda path, array=array: np.save(path, array))
        yield Case(f"npy: {what}", make, (file, word))
    for rows in (NODES - 1, NODES + 1):
        raw = np.zeros(rows, np.float32)
        make = damaged("igb", "paper/node_label_19.npy", lambda path, raw=raw: raw.tofile(path))
        yield Case(f"igb: {rows} raw labels", make, ("node_label_19.npy", f"its {4 * rows} bytes"))

    def numbers_as_mask(path: Path) -> None:
        path.unlink()
        np.save(path.with_name("train_mask.npy"), ids(0, 1))

    make = damaged("npy", "train_idx.npy", numbers_as_mask)
    yield Case("npy: a mask of numbers", make, ("train_mask.npy", "boolean", "int64"))
