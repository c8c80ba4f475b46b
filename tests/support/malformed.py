"""Inputs that an import must refuse: what is no regular file, numpy headers, texts and parquet files that lie.

A case writes its input into a new folder and returns the arguments of the import. `CASES` is made by combining formats,
their files and defects; the names say which.
"""

from __future__ import annotations

import io
import os
import stat
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from small_inputs import EDGES, EDGES_ARE_IN, NODES, SMALL_INPUTS, text_of_edges

I64 = np.int64


@dataclass(frozen=True)
class Case:
    """One malformed input."""

    name: str
    make: Callable[[Path], list[object]]
    """Writes the input; returns the arguments of ``tiering import``."""
    words: tuple[str, ...]
    """What the message must have in it."""


def damaged(kind: str, file: str, damage: Callable[[Path], object], *more: object) -> Callable[[Path], list[object]]:
    """A valid input of a format, one file of which is damaged."""

    def make(folder: Path) -> list[object]:
        source = SMALL_INPUTS[kind](folder)
        damage((source if source.is_dir() else source.parent) / file)
        return [source, *more]

    return make


NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "dangling": (lambda path: path.symlink_to("/nowhere/at/all"), "symbolic link"),
    "loop": (lambda path: path.symlink_to(path), "symbolic link"),
    "directory": (Path.mkdir, "directory"),
    "pipe": (os.mkfifo, "a pipe"),
    "link to a pipe": (lambda path: (os.mkfifo(f"{path}.pipe"), path.symlink_to(f"{path}.pipe")), "a pipe"),
    "socket": (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), "a socket"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device"),
}
FILES = {
    "npy": (
        "edge_index.npy", "edge_weight.npy", "edge_type.npy", "edge_id.npy", "node_feat.npy", "node_label.npy",
        "train_idx.npy", "val_idx.npy", "test_idx.npy", "num_nodes.txt",
    ),
    "igb": (
        "meta.json", "paper/node_feat.npy", "paper/node_label_19.npy", "paper/train_idx.npy", "paper/test_idx.npy",
        "paper__cites__paper/edge_index.npy", "paper__cites__paper/edge_weight.npy",
    ),
    "csv": ("edges.csv",),
    "csv.gz": ("edges.csv.gz",),
    "parquet": ("part-0.parquet", "part-1.parquet"),
}  # fmt: skip


def no_files() -> Iterator[Case]:
    """Each file of each format replaced by something that is no regular file."""
    for kind, files in FILES.items():
        for file in files:
            for what, (put, word) in NO_FILES.items():

                def damage(path: Path, put: Callable[[Path], object] = put) -> None:
                    path.unlink()
                    put(path)

                words = (Path(file).name, word)
                yield Case(f"{kind}: {file} is {what}", damaged(kind, file, damage), words)
    for folder in ("paper", "paper__cites__paper"):
        for what in ("dangling", "loop"):

            def swap(path: Path, put: Callable[[Path], object] = NO_FILES[what][0]) -> None:
                path.rename(path.with_name("away"))
                put(path)

            yield Case(f"igb: folder {folder} is {what}", damaged("igb", folder, swap), (folder, "symbolic link"))
    yield Case("standard input as -", lambda folder: ["-"], ("standard input", "file"))
    yield Case("standard input by name", lambda folder: ["/dev/stdin", "--format", "edgelist"], ("/dev/stdin", "file"))
    yield Case("a device", lambda folder: ["/dev/zero", "--format", "edgelist"], ("/dev/zero", "a device"))


def npy(shape: str, descr: str = "'<i8'", data: bytes = b"", fortran: object = False, version: int = 1) -> bytes:
    """A numpy file with whatever header."""
    text = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 if version == 1 else 4, "little") + text + data


def saved(array: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, **options)
    return file.getvalue()


def zipped(array: Any) -> bytes:
    file = io.BytesIO()
    np.savez(file, x=array)
    return file.getvalue()


def _long(version: int, length: int) -> bytes:
    return b"\x93NUMPY" + bytes([version, 0]) + length.to_bytes(4, "little") + b"{" + b" " * 10_000_000


HEADERS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "magic only": (b"\x93NUMPY", "header"),
    "cut in the header": (saved(np.zeros(8))[:40], "header"),
    "cut in the data": (saved(np.zeros(80))[:-9], "truncated"),
    "one byte more": (saved(np.zeros(8)) + b"x", "oversized"),
    "huge shape": (npy("(2, 1000000000000000)"), "truncated"),
    "shape whose product overflows": (npy("(4294967296, 4294967296)"), "4294967296"),
    "shape whose bytes overflow": (npy("(2, 1152921504606846976)"), "1152921504606846976"),
    "nothing of huge rows": (npy("(0, 9223372036854775807)"), "9223372036854775807"),
    "sizes of 4000 digits": (npy(f"({'9' * 4000}, {'9' * 4000})"), "shape"),
    "sizes of 5000 digits": (npy(f"({'9' * 5000},)"), "header"),
    "10000 axes": (npy(f"({'1,' * 10_000})"), "shape"),
    "negative size": (npy("(2, -3)"), "-3"),
    "negative sizes with a positive product": (npy("(-2, -6)", data=bytes(96)), "-2"),
    "a size that is no number": (npy("(2, 'x')"), "header"),
    "no shape": (npy("None"), "header"),
    "nested": (npy("(" * 3000), "header"),
    "an expression": (npy("(__import__('os').getpid(),)"), "header"),
    "fields": (npy("(8,)", "[('a', '<i4'), ('b', '<f4')]", bytes(64)), "dtype"),
    "subarray": (npy("(8,)", "('<i4', (2,))", bytes(64)), "found"),
    "empty descr": (npy("(8,)", "()", bytes(64)), "header"),
    "unknown descr": (npy("(8,)", "'<q9'", bytes(64)), "header"),
    "huge item": (npy("(8,)", "'|V99999999999999999999'", bytes(64)), "header"),
    "objects": (saved(np.array([{}, None], object), allow_pickle=True), "pickled"),
    "strings": (saved(np.array(["a", "b"])), "dtype"),
    "dates": (saved(np.zeros(8, "M8[s]")), "dtype"),
    "complex": (saved(np.zeros(8, complex)), "complex128"),
    "long doubles": (saved(np.zeros(8, np.longdouble)), "float128"),
    "big endian": (saved(np.zeros(8, ">i8")), "big-endian"),
    "no axis": (saved(np.int64(3)), "()"),
    "three axes": (saved(np.zeros((2, 2, 2), I64)), "(2, 2, 2)"),
    "version 9": (npy("(8,)", version=9), "version"),
    "header of 10 MB": (_long(2, 10_000_000), "header"),
    "header of 4 GB": (_long(2, 2**32 - 1), "header"),
    "npz": (zipped(np.zeros(8)), "archive"),
    "cut npz": (zipped(np.zeros(8))[:100], "archive"),
    "gzip": (zlib.compress(saved(np.zeros(8)), wbits=31), "header"),
    "pickle": (b"\x80\x04\x95" + bytes(40), "header"),
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
    ("edges of 3 rows", "edge_index.npy", np.zeros((3, 5), I64), "(3, 5)"),
    ("edges as floats", "edge_index.npy", np.zeros((2, EDGES)), "float64"),
    ("edges as uint64", "edge_index.npy", np.zeros((2, EDGES), np.uint64), "uint64"),
    ("edges as uint8", "edge_index.npy", np.zeros((2, EDGES), np.uint8), "uint8"),
    ("an id too large", "edge_index.npy", edges(0, 8), "8"),
    ("a negative id", "edge_index.npy", edges(0, -1), "-1"),
    ("the largest id there is", "edge_index.npy", edges(0, 2**63 - 1), str(2**63 - 1)),
    ("the least id there is", "edge_index.npy", edges(0, -(2**63)), str(-(2**63))),
    ("weights nan", "edge_weight.npy", np.full(EDGES, np.nan), "nan"),
    ("weights inf", "edge_weight.npy", np.full(EDGES, np.inf, np.float16), "inf"),
    ("weights negative", "edge_weight.npy", np.full(EDGES, -1), "-1"),
    ("weights as booleans", "edge_weight.npy", np.ones(EDGES, bool), "bool"),
    ("weights too few", "edge_weight.npy", np.ones(EDGES - 1), "(11,)"),
    ("weights of two columns", "edge_weight.npy", np.ones((EDGES, 2)), "(12, 2)"),
    ("types as floats", "edge_type.npy", np.ones(EDGES), "float64"),
    ("types beyond int64", "edge_type.npy", np.full(EDGES, 2**63, np.uint64), str(2**63)),
    ("edge ids beyond int64", "edge_id.npy", np.full(EDGES, 2**64 - 1, np.uint64), str(2**64 - 1)),
    ("features as uint32", "node_feat.npy", np.zeros((NODES, 2), np.uint32), "uint32"),
    ("features by columns", "node_feat.npy", np.asfortranarray(np.zeros((NODES, 2))), "Fortran"),
    ("features without columns", "node_feat.npy", np.zeros((NODES, 0)), "(8, 0)"),
    ("features too few", "node_feat.npy", np.zeros((NODES - 1, 2)), "7"),
    ("no features", "node_feat.npy", np.zeros((0, 2)), "0"),
    ("labels with fractions", "node_label.npy", np.full(NODES, 1.5), "1.5"),
    ("labels beyond", "node_label.npy", np.full(NODES, 2.0**40), "1099511627776"),
    ("labels beyond int64", "node_label.npy", np.full(NODES, 2**63 + 1, np.uint64), str(2**63 + 1)),
    ("labels infinite", "node_label.npy", np.full(NODES, -np.inf, np.float32), "-inf"),
    ("labels below -1", "node_label.npy", np.full(NODES, -2, np.int8), "-2"),
    ("labels of two columns", "node_label.npy", np.zeros((NODES, 2), I64), "(8, 2)"),
    ("labels of no row", "node_label.npy", np.zeros((0, 2, 1), I64), "(0, 2, 1)"),
    ("labels too many", "node_label.npy", np.zeros(NODES + 1), "9"),
    ("a split out of range", "train_idx.npy", ids(0, NODES), "8"),
    ("a split below 0", "test_idx.npy", ids(-1), "-1"),
    ("a split beyond int64", "val_idx.npy", ids(2**64 - 1, dtype=np.uint64), str(2**64 - 1)),
    ("a split twice the same", "train_idx.npy", ids(3, 1, 3), "3"),
    ("an empty split", "train_idx.npy", ids(), "empty"),
    ("a split of two columns", "train_idx.npy", np.arange(4).reshape(2, 2), "(2, 2)"),
    ("a split of floats", "train_idx.npy", np.zeros(1), "float64"),
    ("a mask too short", "train_idx.npy", np.ones(NODES - 1, bool), "mask of 8"),
    ("a mask of two columns", "val_idx.npy", np.ones((NODES // 2, 2), bool), "(4, 2)"),
    ("a mask of nothing", "train_idx.npy", np.zeros(NODES, bool), "empty"),
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


COUNTS = {
    "words": "many", "nothing": "", "negative": "-8", "fraction": "8.5", "30 digits": "9" * 30, "two": "8\n9",
    "5000 digits": "9" * 5000, "a superscript": "8²", "hex": "0x8", "another": "9", "binary": "\0\0\0\0",
}  # fmt: skip
METAS = {
    "cut": '{"num_nodes": {"fos": 8', "a list": "[]", "a number": '{"num_nodes": 8}', "huge": '"' + "x" * 30_000_000,
    "a fraction": '{"num_nodes": {"fos": 8.5}}',
    "negative": '{"num_nodes": {"fos": -8}}', "infinite": '{"num_nodes": {"fos": Infinity}}', "nested": "[" * 100_000,
    "40 digits": f'{{"num_nodes": {{"fos": {"9" * 40}}}}}', "5000 digits": f'{{"num_nodes": {{"fos": {"9" * 5000}}}}}',
    "true": '{"num_nodes": {"fos": true}}', "null": '{"num_nodes": {"fos": null}}',
}  # fmt: skip


def counts() -> Iterator[Case]:
    """Numbers of nodes that are none, or that no memory holds."""
    for what, text in COUNTS.items():
        make = damaged("npy", "num_nodes.txt", lambda path, text=text: path.write_text(text))
        yield Case(f"npy: num_nodes.txt: {what}", make, ("num_nodes.txt",))
    for what, text in METAS.items():
        make = damaged("igb", "meta.json", lambda path, text=text: path.write_text(text))
        yield Case(f"igb: meta.json: {what}", make, ("meta.json",))
    for number in (10**40, 2**63, 2**50, 2**36, -1, "8.5", "9" * 5000, "inf", "node=", "fos=3"):
        for kind in ("npy", "csv", "parquet"):
            make = damaged(kind, EDGES_ARE_IN[kind], lambda path: None, "--num-nodes", number)
            yield Case(f"{kind}: --num-nodes {str(number)[:20]}", make, ("--num-nodes",))

    def only_edges(path: Path, largest: int) -> None:
        for file in path.parent.iterdir():
            file.unlink()
        np.save(path, edges(0, largest))

    for power in (36, 40, 50, 62):
        make = damaged("npy", "edge_index.npy", lambda path, power=power: only_edges(path, 2**power))
        yield Case(f"npy: id 2^{power}", make, ("edge_index.npy", f"id {2**power}", "--num-nodes"))


LONG = "9" * 5_000_000
TEXTS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "none"),
    "one column": (b"1\n2\n", "two ids"),
    "header only": (b"src,dst\n", "none"),
    "comments only": (b"# a\n% b\n", "none"),
    "nul bytes": (b"0,1\n0\0,1\n", "binary"),
    "utf-16": ("0,1\n1,2\n".encode("utf-16"), "UTF-16"),
    "carriage returns only": (b"0,1\r1,2\r2,3\r", "line"),
    "mixed line ends": (b"0,1\n1,2\r2,3\n", "line 2"),
    "ragged, short": (b"0,1,2\n1,2\n", "line 2"),
    "ragged, long": (b"0,1\n1,2,3\n", "line 2"),
    "latin-1 id": (b"0,1\n\xe9,2\n", "line 2"),
    "id in a first line": (b"0,b\n1,2\n", "line 1"),
    "latin-1 id at first": (b"0,\xe9\n1,2\n", "line 1"),
    "fraction": (b"0,1\n1.5,2\n", "line 2"),
    "a whole float": (b"0,1\n1.0,2\n", "line 2"),
    "negative": (b"0,1\n-3,2\n", "-3"),
    "plus": (b"0,1\n+3,2\n", "line 2"),
    "hex": (b"0,1\n0x1F,2\n", "line 2"),
    "hex at first": (b"0x1F,0x2\n0,1\n", "line 1"),
    "exponent": (b"0,1\n1e3,2\n", "line 2"),
    "exponent at first": (b"1e3,1\n1,2\n", "line 1"),
    "underscores": (b"0,1\n1_000,2\n", "line 2"),
    "thousands": (b'0,1\n"1,000",2\n', "line 2"),
    "digits of another script": ("0,1\n\u0661,2\n".encode(), "line 2"),
    "nan": (b"0,1\nnan,2\n", "line 2"),
    "nan at first": (b"nan,nan\n0,1\n", "line 1"),
    "empty field": (b"0,1\n,2\n", "line 2"),
    "empty field at first": (b",1\n1,2\n", "line 1"),
    "null": (b"0,1\nNULL,2\n", "line 2"),
    "open quote": (b'0,1\n"1,2\n2,3\n', "line 2"),
    "quoted line end": (b'0,1\n"1\n",2\n', "line 2"),
    "quote at the end": (b'0,1\n1,2"\n', "line 2"),
    "2^63": (b"0,1\n9223372036854775808,2\n", "line 2"),
    "-2^63": (b"0,1\n-9223372036854775808,2\n", "-9223372036854775808"),
    "2^63 - 1": (b"0,1\n9223372036854775807,2\n", "9223372036854775807"),
    "2^35": (b"0,1\n34359738368,2\n", "--compact-ids"),
    "5 million digits": (f"0,1\n{LONG},2\n".encode(), "line 2"),
    "5 million digits at first": (f"{LONG},2\n0,1\n".encode(), "line 1"),
    "5 million fields": (b"0," * 5_000_000 + b"1\n", "columns"),
    "no line end in 70 MB": (b"1" * 70_000_000, "lines"),
    "weight of words": (b"src,dst,weight\n0,1,x\n", "line 2"),
    "weight nan": (b"src,dst,weight\n0,1,nan\n", "nan"),
    "weight inf": (b"src,dst,weight\n0,1,1e999\n", "inf"),
    "weight negative": (b"src,dst,weight\n0,1,-1\n", "-1"),
    "columns of one name": (b"src,dst,dst\n0,1,2\n", "2 times"),
    "matrix market": (b"%%MatrixMarket matrix coordinate\n1 1 1\n", "Matrix Market"),
    "zip": (zipped(np.zeros(3)), "archive"),
    "numpy": (saved(np.zeros((2, 3), I64)), "numpy"),
    "bzip2": (b"BZh91AY&SY\x95\xb3\x1f\xed\x00\x00\x01\xd1\x80", "edges"),
}


def texts() -> Iterator[Case]:
    """Edge lists, plain and packed."""
    for kind in ("csv", "csv.gz"):
        for what, (data, word) in TEXTS.items():
            packed = zlib.compress(data, 1, wbits=31) if kind == "csv.gz" else data
            make = damaged(
                kind, f"edges.{kind}", lambda path, data=packed: path.write_bytes(data), "--format", "edgelist"
            )
            yield Case(f"{kind}: {what}", make, (f"edges.{kind}", word))
    whole = zlib.compress(text_of_edges().encode() * 50, wbits=31)
    packed_badly = {
        "cut": (whole[:-20], "gzip"),
        "cut header": (whole[:7], "gzip"),
        "wrong checksum": (whole[:-8] + b"1234" + whole[-4:], "gzip"),
        "wrong length": (whole[:-4] + b"1234", "gzip"),
        "bytes behind": (whole + b"garbage", "gzip"),
        "packed twice": (zlib.compress(whole, wbits=31), "edges"),
    }
    endless = {"zeros": (b"\0", "binary"), "one line": (b"1", "lines"), "edges": (b"0,1\n", "temporary")}
    for what, (piece, word) in endless.items():
        make = damaged("csv.gz", "edges.csv.gz", lambda path, piece=piece: path.write_bytes(_bomb(piece)))
        yield Case(f"csv.gz: bomb of {what}", make, ("edges.csv.gz", word))
    for what, (data, word) in packed_badly.items():
        make = damaged("csv.gz", "edges.csv.gz", lambda path, data=data: path.write_bytes(data))
        yield Case(f"csv.gz: {what}", make, ("edges.csv.gz", word))
    for option, value in (
        ("--src-column", "from"), ("--dst-column", "9"), ("--dst-column", "src"), ("--weight-column", "9" * 30),
        ("--delimiter", "ab"), ("--delimiter", ""), ("--delimiter", "\n"), ("--delimiter", '"'), ("--delimiter", "é"),
        ("--delimiter", "1"), ("--delimiter", ";"),
    ):  # fmt: skip
        make = damaged("csv", "edges.csv", lambda path: None, option, value)
        yield Case(f"csv: {option} {value[:5]!r}", make, ())


def _bomb(piece: bytes) -> bytes:
    """A gzip file that inflates to 300 MiB."""
    packer, megabyte = zlib.compressobj(1, wbits=31), piece * ((1 << 20) // len(piece))
    return b"".join(packer.compress(megabyte) for _ in range(300)) + packer.flush()


def _column(values: list[Any], kind: Any) -> Any:
    return pa.array(values, kind)


PARQUETS: dict[str, tuple[Any, str]] = {
    "lists": ([[0], [1]], "list"),
    "structs": ([{"a": 0}, {"a": 1}], "struct"),
    "strings": (["0", "1"], "string"),
    "floats": ([0.0, 1.0], "double"),
    "booleans": ([True, False], "bool"),
    "nothing": (_column([None, None], pa.null()), "null"),
    "nulls": ([0, None], "null"),
    "words in a dictionary": (pa.array(["0", "1"]).dictionary_encode(), "dictionary"),
    "decimals": (_column([0, 1], pa.decimal128(5)), "decimal"),
    "times": (_column([0, 1], pa.timestamp("us")), "timestamp"),
    "bytes": (_column([b"0", b"1"], pa.binary()), "binary"),
    "negative": ([0, -1], "-1"),
    "beyond int64": (_column([0, 2**63], pa.uint64()), str(2**63)),
    "largest": ([0, 2**63 - 1], str(2**63 - 1)),
    "2^35": ([0, 2**35], "--compact-ids"),
}


def parquets() -> Iterator[Case]:
    """Parquet: columns that are no ids or weights, and files that are none."""

    def case(what: str, table: Any, *words: str) -> Case:
        def write(path: Path) -> None:
            pa_parquet.write_table(table, path)
            path.with_name("part-1.parquet").unlink()

        return Case(f"parquet: {what}", damaged("parquet", "part-0.parquet", write), ("part-0.parquet", *words))

    for what, (column, word) in PARQUETS.items():
        yield case(f"src of {what}", pa.table({"src": column, "dst": [1, 0]}), "src", word)
        yield case(f"dst of {what}", pa.table({"src": [0, 1], "dst": column}), "dst", word)
    for what, column in {"strings": ["a", "b"], "nan": [1.0, np.nan], "null": [1.0, None], "lists": [[1], [2]]}.items():
        yield case(f"weight of {what}", pa.table({"src": [0, 1], "dst": [1, 0], "weight": column}), "expected")
    twice = pa.Table.from_arrays([pa.array([0, 1])] * 3, names=["src", "dst", "dst"])
    yield case("columns of one name", twice, "dst", "2 times")
    yield case("one column", pa.table({"src": [0, 1]}), "two or more columns")
    yield case("no rows", pa.table({"src": pa.array([], pa.int64()), "dst": pa.array([], pa.int64())}), "none")
    for what, change in {
        "empty": lambda data: b"",
        "magic only": lambda data: b"PAR1",
        "magic twice": lambda data: b"PAR1PAR1",
        "no magic": lambda data: b"XXXX" + data[4:-4] + b"XXXX",
        "cut footer": lambda data: data[:-12],
        "half": lambda data: data[: len(data) // 2],
        "footer too long": lambda data: data[:-8] + b"\xff\xff\xff\x7fPAR1",
        "footer of noise": lambda data: data[:-60] + bytes(range(52)) + data[-8:],
        "zeroed pages": lambda data: data[:4] + bytes(200) + data[204:],
        "encrypted": lambda data: data[:-4] + b"PARE",
        "text": lambda data: b"src,dst\n0,1\n",
    }.items():
        make = damaged(
            "parquet", "part-1.parquet", lambda path, change=change: path.write_bytes(change(path.read_bytes()))
        )
        yield Case(f"parquet: {what}", make, ("part-1.parquet",))


_SHARES = {no_files: 5, headers: 11, values: 1, counts: 1, texts: 3, parquets: 1}
CASES = [case for make in _SHARES for case in make()]
SOME_CASES = [case for make, share in _SHARES.items() for case in list(make())[::share]]
"""Fewer of those that are repeated for many files."""
