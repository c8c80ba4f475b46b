"""The writer of an export's directory: its files are ``.npy`` files."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tiering.artifacts.direct_io import ALIGNMENT
from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.storage import write_durably
from tiering.artifacts.writer import DirectoryWriter
from tiering.errors import InternalError


class ExportWriter(DirectoryWriter):
    """A writer of the files of an export, which has ``export.json`` in the place of an artifact's manifest."""

    def header(self, name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
        """Return the header of a ``.npy`` file; scratch files have none."""
        return npy_header(storage_dtype(dtype), shape) if name.endswith(".npy") else b""

    def drop(self, folder: str) -> None:
        """Remove the recorded files of a folder of scratch files."""
        for name in [name for name in self._files if name.startswith(f"{folder}/")]:
            (self.path / name).unlink(missing_ok=True)
            del self._files[name]
            if self.journal is not None:
                self.journal.forget(f"file {self.prefix}{name}")

    def commit(self, documents: dict[str, bytes]) -> None:
        """Write the documents, and give the directory its name."""
        self.finish_reads()
        self.sweep()
        for name, data in documents.items():
            write_durably(self.path / name, data)
        if self._output is None:
            raise InternalError(f"{self.out}: part of another directory")
        self._output.commit()


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Return the header of a ``.npy`` file, version 1.0, in C order, padded to 4096 bytes.

    So a row of a page's size lies in one page, as direct I/O needs it. An empty array has a header of 128 bytes: numpy
    maps from the last page that begins before the data, which must be in the file.
    """
    fields = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {tuple(map(int, shape))!r}, }}"
    magic = b"\x93NUMPY\x01\x00"
    length = (128 if 0 in shape else ALIGNMENT) - len(magic) - 2
    return magic + struct.pack("<H", length) + fields.encode("latin1").ljust(length - 1) + b"\n"
