"""The door: what is at this path, and open it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tiering.artifacts.regular import entries, is_folder, is_there
from tiering.datasets.archive import refuse_archive, refuse_archives
from tiering.datasets.edge_list import SUFFIXES as TEXT_SUFFIXES
from tiering.datasets.edge_list import open_edge_list
from tiering.datasets.igb import find_tree, open_igb
from tiering.datasets.npy_dir import is_npy_dir, open_npy_dir
from tiering.datasets.options import given_options, option_name, parse_options, refuse_foreign_options
from tiering.datasets.parquet import SUFFIXES as PARQUET_SUFFIXES
from tiering.datasets.parquet import open_parquet, parquet_files
from tiering.datasets.reading import Reading
from tiering.datasets.scratch import Scratch
from tiering.datasets.transforms import transform
from tiering.errors import InputError, MissingError
from tiering.formats.protocols import Dataset
from tiering.memory import Budget, parse_memory

READERS: dict[str, Callable[[Path, Reading], Dataset]] = {
    "npy": open_npy_dir,
    "igb": open_igb,
    "edgelist": open_edge_list,
    "parquet": open_parquet,
}
"""Format -> reader."""
STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")


def detect(path: str | os.PathLike[str]) -> str:
    """Format of the dataset at `path`.

    Raises
    ------
    MissingError
        If there is nothing at `path`.
    InputError
        If it is none of the known formats; says what was looked for.
    """
    path = Path(path)
    if _is_directory(path):
        if find_tree(path) is not None:
            return "igb"
        if is_npy_dir(path):
            return "npy"
        if parquet_files(path):
            return "parquet"
        refuse_archives(entries(path))
        raise InputError(
            f"{path}: no dataset recognised in this directory; looked for SRC__NAME__DST/edge_index.npy (igb; also in "
            "processed/ and SIZE/processed/), edge_index.npy (npy), *.parquet (parquet); name the --format or give "
            f"the right directory; found: {_listing(path)}"
        )
    suffixes = [s.lower() for s in path.suffixes]
    with path.open("rb") as file:
        start = file.read(6)
    if start[:4] == b"PAR1" or (suffixes and suffixes[-1] in PARQUET_SUFFIXES):
        return "parquet"
    if start != b"\x93NUMPY" and any(s in TEXT_SUFFIXES for s in suffixes[-2:]):
        return "edgelist"
    refuse_archive(path)
    hint = "give the directory that holds it" if start == b"\x93NUMPY" else "name the --format"
    raise InputError(
        f"{path}: no dataset recognised in this file; looked for parquet ({', '.join(PARQUET_SUFFIXES)}) and text "
        f"({', '.join(TEXT_SUFFIXES)}, also .gz); {hint}"
    )


def _is_directory(path: Path) -> bool:
    """Whether it is a directory, and if not, a regular file."""
    if str(path) in STANDARD_INPUT and not path.is_file():
        raise InputError(f"{path}: expected a file or directory, found standard input; save it in a file first")
    if is_folder(path, "a file or directory"):
        return True
    if not is_there(path, "a dataset"):
        raise MissingError(f"{path}: no such file or directory; check the path")
    return False


def _listing(path: Path) -> str:
    names = [each.name for each in entries(path)]
    return (", ".join(names[:8]) + (", ..." if len(names) > 8 else "")) or "nothing"


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
        ``auto``, ``npy``, ``igb``, ``edgelist`` or ``parquet``.
    memory
        What to stay within, as `tiering.memory.parse_memory` takes it: what is larger goes to temporary files.
    **options
        See `tiering.datasets.options.SourceOptions`; ``None`` is the default of each.

    Returns
    -------
    Dataset
        Close it when done: it may own temporary files.

    Raises
    ------
    MissingError
        If something that must be there is not.
    InputError
        If an option or a file is wrong; the message says which, what was expected, what was found, and what to do.
    """
    parsed = parse_options(options)
    _is_directory(Path(path))
    chosen = detect(path) if format == "auto" else format
    if chosen not in READERS:
        raise InputError(f"--format: expected auto, {', '.join(READERS)}, found {chosen!r}")
    source = Path(path).absolute()
    if ".." in source.parts:  # shorter in messages and records; otherwise symbolic links keep their names
        source = source.resolve()
    refuse_foreign_options(options, chosen)
    reading = Reading(parsed, Scratch(parsed.work_dir, parse_memory(memory)))
    reading.notes.update(format=chosen, source=str(source), options=given_options(options))
    try:
        dataset = READERS[chosen](source, reading)
        transform(dataset, reading)
        _require_known_types(dataset, reading)
        if parsed.split is not None and "splits" not in reading.notes:
            raise InputError(f"--split: no node type of {source} has labels to split; leave the option out")
    except BaseException:
        reading.scratch.close()
        raise
    dataset.on_close(reading.scratch.close)
    return dataset


def _require_known_types(dataset: Dataset, reading: Reading) -> None:
    for name in ("num_nodes", "feature_dim", "feature_dtype"):
        for node_type in getattr(reading.options, name).by_type:
            if node_type not in dataset.nodes:
                raise InputError(
                    f"{option_name(name)}: no node type {node_type}; there are: {', '.join(dataset.nodes)}"
                )
