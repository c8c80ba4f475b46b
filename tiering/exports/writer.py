"""The directory of an export while it is written: ``.npy`` files begin with the header of that format."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from tiering.artifacts.direct_io import ALIGNMENT
from tiering.artifacts.directory_writer import DirectoryWriter
from tiering.artifacts.manifest import storage_dtype
from tiering.errors import InternalError


class ExportWriter(DirectoryWriter):
    """Writes the files of an export; other programs read them, so there is no manifest of artifacts."""

    def header(self, name: str, dtype: str, shape: tuple[int, ...]) -> bytes:
        """The header of a ``.npy`` file."""
        return npy_header(storage_dtype(dtype), shape) if name.endswith(".npy") else b""

    def drop(self, folder: str) -> None:
        """Remove the recorded files of a folder, which were needed for a while."""
        for name in [name for name in self._files if name.startswith(f"{folder}/")]:
            (self.path / name).unlink(missing_ok=True)
            del self._files[name]
            if self.journal is not None:
                self.journal.forget(f"file {self.prefix}{name}")

    def commit(self, documents: dict[str, bytes]) -> None:
        """Write the small files, of which ``export.json`` is one, and give the directory its name."""
        self.finish_reads()
        self.sweep()
        for name, data in documents.items():
            self.put_document(name, data)
        if self._output is None:
            raise InternalError(f"{self.out}: part of another directory")
        self._output.commit()


def npy_header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """Header of a ``.npy`` file, version 1.0, in C order, of 4096 bytes.

    So rows of a page's size lie in one page each, which readers past the page cache are glad of. Before no data it has
    128 bytes: numpy maps from the last page that begins before the data, which must be in the file.
    """
    fields = f"{{'descr': {dtype.str!r}, 'fortran_order': False, 'shape': {tuple(map(int, shape))!r}, }}"
    magic = b"\x93NUMPY\x01\x00"
    length = (128 if 0 in shape else ALIGNMENT) - len(magic) - 2
    return magic + struct.pack("<H", length) + fields.encode("latin1").ljust(length - 1) + b"\n"
