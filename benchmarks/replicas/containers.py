"""Files of the kinds that published datasets come in, written from blocks of arrays."""

from __future__ import annotations

import gzip
import pickle
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as pa_csv

Blocks = Iterable[npt.NDArray[Any]]


@dataclass(frozen=True)
class Array:
    """An array that is made block by block along its first axis."""

    dtype: str
    shape: tuple[int, ...]
    blocks: Callable[[], Blocks]
    """The blocks, from the first on, each time it is called."""

    def save(self, file: IO[bytes], *, header: bool = True) -> None:
        """Write it as ``numpy.save`` would, or its bytes alone."""
        if header:
            np.lib.format.write_array_header_1_0(
                file, {"descr": self.dtype, "fortran_order": False, "shape": self.shape}
            )
        for block in self.blocks():
            data = np.ascontiguousarray(block, self.dtype)
            file.write(data.reshape(-1).view(np.uint8).data)


def save_npy(path: Path, array: Array, *, header: bool = True) -> None:
    """Write a numpy file, or one without its header."""
    with path.open("wb") as file:
        array.save(file, header=header)


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write an archive of deflated arrays, as ``numpy.savez_compressed`` writes it."""
    with path.open("wb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                array.save(member)


def save_csv(path: Path, array: Array, *, delimiter: str = ",", head: str = "") -> None:
    """Write a line for each row, without names of columns; deflated where the name ends in .gz."""
    options = pa_csv.WriteOptions(include_header=False, delimiter=delimiter)
    with path.open("wb") as file:
        packed = gzip.GzipFile(fileobj=file, mode="wb", compresslevel=1, mtime=0) if path.suffix == ".gz" else file
        packed.write(head.encode())
        for block in array.blocks():
            columns = block.reshape(block.shape[0], -1).astype(array.dtype)
            table = pa.table({str(k): columns[:, k] for k in range(columns.shape[1])})
            pa_csv.write_csv(table, packed, options)
        if packed is not file:
            packed.close()


def save_pt(path: Path, value: Any) -> None:
    """Write a value without tensors as ``torch.save`` does."""
    with path.open("wb") as file, zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(value, protocol=2))
        archive.writestr(f"{path.stem}/version", "3\n")


def save_pickle(path: Path, value: Any) -> None:
    """Write a Python object as ``numpy.save`` does."""
    with path.open("wb") as file:
        np.save(file, np.array(value, dtype=object), allow_pickle=True)
