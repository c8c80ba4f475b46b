"""Report of a full check: the bytes compared with checksums, and the damage."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from tiering.artifacts.checksum import SAMPLE_BYTES, SAMPLES, num_blocks, sampled_digest
from tiering.artifacts.manifest import CHECKSUMS, External, Manifest
from tiering.artifacts.problems import Problem
from tiering.artifacts.storage import storage_errors
from tiering.errors import FormatError, StorageError
from tiering.units import format_bytes

_SHOWN = 3
"""Damaged blocks that a problem names."""
_PIECE = 8 * 1024 * 1024


@dataclass
class VerifyReport:
    """A record of what a check compared with checksums."""

    compared: int = 0
    """Bytes that were read and compared with a checksum."""
    known: int = 0
    """Bytes that have a checksum."""
    samples: list[str] = field(default_factory=list)
    """Files that are known by samples only, which were compared."""

    def to_json(self) -> dict[str, Any]:
        """Return the report's JSON form."""
        return {"compared": self.compared, "known": self.known, "samples": self.samples}

    def compare(self, manifest: Manifest, name: str, threads: int, sample: float) -> list[Problem]:
        """Return the damage of a file: of all its blocks, or of a fraction `sample` of them drawn at random."""
        try:
            verifier = manifest.verifier(name)
        except FormatError as error:
            return [Problem(CHECKSUMS, str(error), "checksum")]
        count = num_blocks(verifier.nbytes)
        wanted = range(count) if sample >= 1 else random.sample(range(count), min(count, max(1, round(sample * count))))
        where = name if name in manifest.files else f"external {name}: {verifier.path}"
        try:
            wrong = verifier.damaged(wanted, threads)
        except StorageError as error:
            return [Problem(where, str(error), "external")]
        self.known += verifier.nbytes
        self.compared += sum(end - begin for begin, end in map(verifier.span, wanted))
        if not wrong:
            return []
        places = ", ".join(verifier.describe(block) for block in wrong[:_SHOWN])
        more = f" and {len(wrong) - _SHOWN} more places" if len(wrong) > _SHOWN else ""
        return [Problem(where, f"content changed: {places}{more} are not what was written", "checksum")]

    def compare_samples(self, name: str, external: External, whole: bool) -> list[Problem]:
        """Return the damage of a user's file by its samples; if `whole`, read all of it to see what the disk lost."""
        where = f"external {name}: {external.path}"
        try:
            with storage_errors(external.path), external.path.open("rb", buffering=0) as file:
                while whole and file.read(_PIECE):
                    pass
                digest = sampled_digest(external.path)
        except StorageError as error:
            return [Problem(where, str(error), "external")]
        if external.bytes <= SAMPLES * SAMPLE_BYTES:
            self.known, self.compared = self.known + external.bytes, self.compared + external.bytes
        else:
            self.samples.append(f"{external.path} ({'read whole' if whole else 'not read whole'})")
        if digest == external.digest:
            return []
        return [Problem(where, f"content changed: expected {external.digest}, found {digest}", "checksum")]

    def __str__(self) -> str:
        told = f"{format_bytes(self.compared)} of {format_bytes(self.known)} compared with checksums"
        if self.samples:
            told += f"; known by 64 samples alone, which were compared: {', '.join(self.samples)}"
        return told
