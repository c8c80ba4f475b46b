"""Zip archives, such as files of ``torch.save``: their members compared with the checksums that the archive holds."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

from tiering.artifacts.storage import storage_errors
from tiering.errors import InputError

_PIECE = 256 * 1024


def compare_members(path: Path, what: str) -> None:
    """Raise `InputError` if a member of an archive is not what was saved, by its CRC-32.

    Members without a checksum (0, as ``torch.serialization.set_crc32_options(False)`` leaves it) are not compared.
    Cost: one sequential read of the file, about a second for each GB, whatever of it is needed; 256 KiB of memory.
    """
    member = None
    try:
        with storage_errors(path), zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                with archive.open(member) as content:
                    while member.CRC and content.read(_PIECE):
                        pass
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        name = "" if member is None else f" {member.filename}"
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: expected {what}, found a damaged archive:{name} ({reason}); get it again") from error
