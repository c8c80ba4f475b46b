"""Edge lists and parquet files that an import must refuse."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from cases import Case, damaged, saved, zipped
from small_inputs import text_of_edges

LONG = "9" * 5_000_000
TEXTS: dict[str, tuple[bytes, str]] = {
    "utf-16": ("0,1\n1,2\n".encode("utf-16"), "UTF-16"),
    "carriage returns only": (b"0,1\r1,2\r2,3\r", "line"),
    "mixed line ends": (b"0,1\n1,2\r2,3\n", "line 2"),
    "latin-1 id": (b"0,1\n\xe9,2\n", "line 2"),
    "id in a first line": (b"0,b\n1,2\n", "line 1"),
    "plus": (b"0,1\n+3,2\n", "line 2"),
    "hex": (b"0,1\n0x1F,2\n", "line 2"),
    "exponent": (b"0,1\n1e3,2\n", "line 2"),
    "underscores": (b"0,1\n1_000,2\n", "line 2"),
    "digits of another script": ("0,1\n\u0661,2\n".encode(), "line 2"),
    "nan": (b"0,1\nnan,2\n", "line 2"),
    "null": (b"0,1\nNULL,2\n", "line 2"),
    "quoted line end": (b'0,1\n"1\n",2\n', "line 2"),
    "2^63": (b"0,1\n9223372036854775808,2\n", "line 2"),
    "2^63 - 1": (b"0,1\n9223372036854775807,2\n", "9223372036854775807"),
    "2^35": (b"0,1\n34359738368,2\n", "--compact-ids"),
    "5 million digits": (f"0,1\n{LONG},2\n".encode(), "line 2"),
    "5 million fields": (b"0," * 5_000_000 + b"1\n", "columns"),
    "no line end in 70 MB": (b"1" * 70_000_000, "lines"),
    "weight inf": (b"src,dst,weight\n0,1,1e999\n", "inf"),
    "weights for ids": (b"src,weight\n0,1\n", "both"),
    "columns of one name": (b"src,dst,dst\n0,1,2\n", "2 times"),
    "matrix market": (b"%%MatrixMarket matrix coordinate\n1 1 1\n", "Matrix Market"),
    "zip": (zipped(np.zeros(3)), "archive"),
    "numpy": (saved(np.zeros((2, 3), np.int64)), "numpy"),
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


PARQUETS: dict[str, tuple[Any, str]] = {
    "lists": ([[0], [1]], "list"),
    "structs": ([{"a": 0}, {"a": 1}], "struct"),
    "strings": (["0", "1"], "string"),
    "booleans": ([True, False], "bool"),
    "nothing": (pa.array([None, None], pa.null()), "null"),
    "words in a dictionary": (pa.array(["0", "1"]).dictionary_encode(), "dictionary"),
    "fractional decimals": (pa.array([Decimal("0.5"), Decimal("1.5")], pa.decimal128(5, 1)), "decimal"),
    "times": (pa.array([0, 1], pa.timestamp("us")), "timestamp"),
    "bytes": (pa.array([b"0", b"1"], pa.binary()), "binary"),
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
