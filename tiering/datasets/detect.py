"""The door: what is at this path, and open it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tiering.artifacts.regular import entries, is_folder, is_there
from tiering.datasets import edge_list, igb, lists, npy, parquet
from tiering.datasets.options import FORMAT_OPTIONS, ImportOptions, given_options, option_name
from tiering.datasets.reader import Reader, Reading
from tiering.datasets.scratch import Scratch
from tiering.datasets.transforms import transform
from tiering.errors import InputError, MissingError
from tiering.formats.npy_file import read_start, refuse_archive, refuse_archives
from tiering.formats.protocols import Dataset
from tiering.memory import Budget, parse_memory

READERS: dict[str, Reader] = {
    "npy": npy.READER,
    "csc": lists.CSC_READER,
    "csr": lists.CSR_READER,
    "igb": igb.READER,
    "edgelist": edge_list.READER,
    "parquet": parquet.READER,
}
"""Format -> reader, in the order in which messages name them."""
BY_SIGN = ("igb", "npy", "parquet", "edgelist")
"""The order in which signs are looked for: a tree may hold what looks like other formats, and text looks like any."""
STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def detect(path: str | os.PathLike[str]) -> str:
    """Format of the dataset at `path`; `InputError` says what was looked for if it is none of those known."""
    path = Path(path)
    directory = _is_directory(path)
    signs = {name: READERS[name].directory if directory else READERS[name].file for name in BY_SIGN}
    for name, sign in signs.items():
        if sign is not None and sign.recognises(path):
            return name
    if directory and lists.find_lists(path) is not None:
        raise InputError(
            f"{path}: holds {lists.INDPTR}, which does not say whose lists these are; give --format csc if there is a "
            "list of in-neighbours for each destination, --format csr if there is a list of targets for each source"
        )
    looked_for = [sign.looked_for for sign in signs.values() if sign is not None]
    if directory:
        refuse_archives(entries(path))
        names = [entry.name for entry in entries(path)]
        listing = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise InputError(
            f"{path}: no dataset recognised in this directory; looked for {', '.join(looked_for)}; name the --format "
            f"or give the right directory; found: {listing or 'nothing'}"
        )
    refuse_archive(path)
    hint = "give the directory that holds it" if read_start(path, 6) == b"\x93NUMPY" else "name the --format"
    raise InputError(f"{path}: no dataset recognised in this file; looked for {' and '.join(looked_for)}; {hint}")


def _is_directory(path: Path) -> bool:
    """Whether it is a directory, and if not, a regular file."""
    if str(path) in STANDARD_INPUT and not path.is_file():
        raise InputError(f"{path}: expected a file or directory, found standard input; save it in a file first")
    if is_folder(path, "a file or directory"):
        return True
    if not is_there(path, "a dataset"):
        raise MissingError(f"{path}: no such file or directory; check the path")
    return False


def open_dataset(
    path: str | os.PathLike[str],
    format: str = "auto",  # noqa: A002 - the name the command line has
    *,
    memory: str | int | Budget | None = None,
    **options: Any,
) -> Dataset:
    """Open a dataset of the user's, checked and described, its large arrays left where they are.

    Parameters
    ----------
    path
        File or directory.
    format
        ``auto``, ``npy``, ``csc``, ``csr``, ``igb``, ``edgelist`` or ``parquet``.
    memory
        What to stay within, as `tiering.memory.parse_memory` takes it: what is larger goes to temporary files.
    **options
        See `tiering.datasets.options.ImportOptions`; ``None`` is the default of each.

    Returns
    -------
    Dataset
        Close it when done: it may own temporary files.

    Raises
    ------
    MissingError, InputError
        If something is not there; if an option or a file is wrong.
    """
    parsed, given = ImportOptions.parse(options), given_options(options)
    _is_directory(Path(path))
    chosen = detect(path) if format == "auto" else format
    if chosen not in READERS:
        raise InputError(f"--format: expected auto, {', '.join(READERS)}, found {chosen!r}")
    source = Path(path).absolute()
    if ".." in source.parts:  # shorter in messages and records; otherwise symbolic links keep their names
        source = source.resolve()
    for name in given:
        if name in FORMAT_OPTIONS - READERS[chosen].takes:  # it would be ignored
            others = ", ".join(other for other, reader in READERS.items() if name in reader.takes)
            raise InputError(f"{option_name(name)}: has no meaning for format {chosen}; it is for {others}")
    reading = Reading(chosen, parsed, Scratch(parsed.work_dir, parse_memory(memory)))
    reading.notes.update(format=chosen, source=str(source), options=given)
    try:
        dataset = READERS[chosen].open(source, reading)
        transform(dataset, reading)
        for name in ("num_nodes", "feature_dim", "feature_dtype"):
            for node_type in getattr(parsed, name).by_type:
                if node_type not in dataset.nodes:
                    known = ", ".join(dataset.nodes)
                    raise InputError(f"{option_name(name)}: no node type {node_type}; there are: {known}")
        if parsed.split is not None and "splits" not in reading.notes:
            raise InputError(f"--split: no node type of {source} has labels to split; leave the option out")
    except BaseException:
        reading.scratch.close()
        raise
    dataset.on_close(reading.scratch.close)
    return dataset
