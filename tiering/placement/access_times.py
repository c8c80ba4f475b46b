"""What one access costs more when its data lie in host memory than when they lie on the GPU.

The figures behind the split of a GPU's memory (`tiering.placement.split`): assumed ones, from the speed of a link, or
measured ones, from a file. Also what peers save of that, and what SSDs cost on top.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiering.errors import InputError, MissingError

ASSUMED = "assumed"
"""Source of the default figures."""
WIDE_BYTES_PER_SECOND = 25e9
"""PCIe 4.0 x16 under wide reads of host memory by the GPU: of 31.5 GB/s raw, what remains after headers."""
SECTOR_BYTES = 32
"""Least that a GPU reads of host memory; a scattered read costs a sector."""
SECTORS_PER_SECOND = WIDE_BYTES_PER_SECOND / 2 / SECTOR_BYTES
"""Scattered sectors reach half of the wide bandwidth: each carries a header as long as itself."""
HOST_SHARE = 1 - 1 / 100
"""Share of the host's time that is saved: the GPU's own memory counts as 100 times as fast."""
PEER_SHARE = 0.9
"""A peer's memory counts as ten times as fast as the host's (NVLink beside PCIe)."""
SSD_READ_BYTES = 4096
"""A read of an SSD; rows up to this size take one."""
SSD_READS_PER_SECOND = 1e6
"""Of one SSD, at random."""
_FORM = (
    '{"device": "...", "feature_seconds": {"base": x, "per_byte": y}, "list_seconds": a, "neighbour_seconds": b}, '
    "in seconds"
)


@dataclass(frozen=True)
class AccessTimes:
    """Seconds saved per access: from host memory less from GPU memory, with all accesses of a batch in flight.

    The defaults are arithmetic: a list's begin and end, and each neighbour id, are one scattered sector of 32 B, 2.53
    ns; a feature row is its bytes at 25 GB/s, 0.0396 ns each, and one sector, because rows begin and end inside
    sectors. Of each, 99 % is saved.
    """

    feature_base: float = HOST_SHARE / SECTORS_PER_SECOND
    """Per feature row, whatever its size."""
    feature_per_byte: float = HOST_SHARE / WIDE_BYTES_PER_SECOND
    """Per byte of a feature row."""
    list_seconds: float = HOST_SHARE / SECTORS_PER_SECOND
    """Per adjacency list looked up: its begin and end."""
    neighbour_seconds: float = HOST_SHARE / SECTORS_PER_SECOND
    """Per neighbour id drawn from a list."""
    peer_share: float = PEER_SHARE
    """Share of a feature row's seconds that a peer's memory saves, too."""
    ssd_seconds: float = 1 / SSD_READS_PER_SECOND
    """Per read of up to `SSD_READ_BYTES` from one SSD: what it costs more than host memory."""
    source: str = ASSUMED
    """``assumed``, or ``measured on`` and the device."""

    def feature(self, row_bytes: int) -> float:
        """Seconds saved by an access to a feature row of `row_bytes` bytes that the GPU holds."""
        return self.feature_base + self.feature_per_byte * row_bytes

    def saved_by_tiers(self, gpu: Any, shared: Any, before_ssd: Any) -> Any:
        """Seconds saved by tiers; numbers or arrays.

        Parameters
        ----------
        gpu, shared
            What rows on the GPU, and rows on the GPU and its peers, would save on the GPU beside host memory.
        before_ssd
            What rows of these tiers and of host memory save beside SSDs.
        """
        return gpu + self.peer_share * (shared - gpu) + before_ssd

    def to_json(self) -> dict[str, Any]:
        """The form of the file, with ``source`` for ``device``."""
        return {
            "source": self.source,
            "feature_seconds": {"base": self.feature_base, "per_byte": self.feature_per_byte},
            "list_seconds": self.list_seconds,
            "neighbour_seconds": self.neighbour_seconds,
            "peer_share": self.peer_share,
            "ssd_seconds": self.ssd_seconds,
        }


def read_access_times(path: str | os.PathLike[str]) -> AccessTimes:
    """Read measured figures from a JSON file: ``device``, and seconds as in `AccessTimes.to_json`.

    ``peer_share`` and ``ssd_seconds`` may be missing, and are assumed then.

    Raises
    ------
    MissingError
        If there is no such file.
    InputError
        If it is no JSON, a field is missing, unknown or no number of seconds from 0 to 1, or all of them are 0.
    """
    file = Path(path)
    if not file.is_file():
        raise MissingError(f"gpu times: {file}: no such file; leave --gpu-times out for assumed figures")
    try:
        document = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise InputError(f"gpu times: {file}: not valid JSON ({error}); expected {_FORM}") from None
    where = f"gpu times: {file}"
    required = ("device", "feature_seconds", "list_seconds", "neighbour_seconds")
    _fields(document, required, where, optional=("peer_share", "ssd_seconds"))
    feature = document["feature_seconds"]
    _fields(feature, ("base", "per_byte"), f"{where}: feature_seconds")
    device = document["device"]
    if not isinstance(device, str) or not device.strip():
        raise InputError(f"{where}: device: expected the name of the device measured, found {device!r}")
    found = AccessTimes(
        _seconds(feature["base"], f"{where}: feature_seconds.base"),
        _seconds(feature["per_byte"], f"{where}: feature_seconds.per_byte"),
        _seconds(document["list_seconds"], f"{where}: list_seconds"),
        _seconds(document["neighbour_seconds"], f"{where}: neighbour_seconds"),
        _share(document.get("peer_share", PEER_SHARE), f"{where}: peer_share"),
        _seconds(document.get("ssd_seconds", 1 / SSD_READS_PER_SECOND), f"{where}: ssd_seconds"),
        f"measured on {device.strip()}",
    )
    if not any((found.feature_base, found.feature_per_byte, found.list_seconds, found.neighbour_seconds)):
        raise InputError(f"{where}: expected seconds above 0 for features or lists, found 0 for all; measure again")
    return found


def _fields(document: Any, names: tuple[str, ...], where: str, optional: tuple[str, ...] = ()) -> None:
    if not isinstance(document, Mapping):
        raise InputError(f"{where}: expected an object {_FORM}, found {document!r}")
    missing, unknown = [n for n in names if n not in document], sorted(set(document) - set(names) - set(optional))
    if missing or unknown:
        wrong = f"no {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        raise InputError(f"{where}: expected {', '.join(names)}, found {wrong}; the form is {_FORM}")


def _number(value: Any, where: str, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: expected {what}, a finite number of 0 or more, found {value!r}")
    return float(value)


def _seconds(value: Any, where: str) -> float:
    if (found := _number(value, where, "seconds")) > 1:
        raise InputError(f"{where}: expected seconds per access, far below 1, found {value!r}; are these nanoseconds?")
    return found


def _share(value: Any, where: str) -> float:
    if (found := _number(value, where, "a share")) > 1:
        raise InputError(f"{where}: expected a share, at most 1, found {value!r}")
    return found
