"""``raw-devices.json``: which block device holds which SSD image of a layout."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tiering.artifacts.document import schema_problems
from tiering.artifacts.storage import storage_errors
from tiering.errors import FormatError

RECORD = "raw-devices.json"


@dataclass(frozen=True)
class RawDevice:
    """An image and the device that it goes to."""

    image: int
    device: str
    """By a name that stays, where there is one."""
    model: str
    device_bytes: int
    bytes: int
    """Of the image, from the first byte of the device on."""
    checksum: str
    """Of the image."""
    found: str
    """What lay there before; empty: nothing that is known."""


@dataclass(frozen=True)
class RawExport:
    """Devices that hold the SSD images of a layout, or would."""

    layout: str
    digest: str
    """Of the layout."""
    page_bytes: int
    devices: tuple[RawDevice, ...]

    def to_json(self) -> dict[str, Any]:
        """JSON types, as in ``raw-devices.json``."""
        return {"format": "tiering.raw-devices", "version": "1.0", **asdict(self)}

    @classmethod
    def read(cls, path: Path) -> RawExport:
        """The record at `path`, or in that folder; `FormatError` if it is none."""
        file = path / RECORD if path.is_dir() else path
        with storage_errors(file):
            text = file.read_text(encoding="utf-8", errors="replace")
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise FormatError(f"{file}: expected JSON ({error}); export the images again with --out") from error
        problems = schema_problems(document, "raw-devices")
        if problems:
            raise FormatError(f"{file}: {problems[0]}; see data_specs/export.md")
        fields = {name: value for name, value in document.items() if name not in ("format", "version")}
        devices = sorted((RawDevice(**device) for device in document["devices"]), key=lambda device: device.image)
        return cls(**{**fields, "devices": tuple(devices)})
