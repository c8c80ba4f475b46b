"""Inputs that an import must refuse, by combining formats, their files and defects; the names say which.

A case writes its input into a new folder and returns the arguments of the import.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from cases import FILES, Case, damaged
from malformed_numpy import edges, headers, values
from malformed_tables import parquets, texts
from small_inputs import EDGES_ARE_IN

NO_FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "dangling": (lambda path: path.symlink_to("/nowhere/at/all"), "symbolic link"),
    "loop": (lambda path: path.symlink_to(path), "symbolic link"),
    "directory": (Path.mkdir, "directory"),
    "pipe": (os.mkfifo, "a pipe"),
    "link to a pipe": (lambda path: (os.mkfifo(f"{path}.pipe"), path.symlink_to(f"{path}.pipe")), "a pipe"),
    "socket": (lambda path: os.mknod(path, stat.S_IFSOCK | 0o600), "a socket"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a device"),
}


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


_SHARES = {no_files: 14, headers: 34, values: 2, counts: 2, texts: 8, parquets: 2}
CASES = [case for make in _SHARES for case in make()]
SOME_CASES = [case for make, share in _SHARES.items() for case in list(make())[::share]]
"""Fewer of those that are repeated for many files."""
