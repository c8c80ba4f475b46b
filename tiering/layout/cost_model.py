"""The costs of accesses by which a GPU's memory is divided: assumed, from a link's speed, or measured, from a file."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tiering.errors import InputError, MissingError

ASSUMED = "assumed"  # source of the default figures
WIDE_BYTES_PER_SECOND = 25e9
"""Speed of PCIe 4.0 x16 under wide reads of host memory by the GPU: 31.5 GB/s raw, without headers."""
SECTORS_PER_SECOND = WIDE_BYTES_PER_SECOND / 2 / 32
"""Scattered reads of a sector of 32 B reach half of the wide bandwidth: a header is as long as a sector."""
SAVED = 1 - 1 / 100  # fraction of the host's time that is saved: the GPU's own memory counts as 100 times as fast
SSD_READ_BYTES = 4096  # bytes of a read of an SSD; rows up to this size take one
_ASSUMED = {"peer_share": 0.9, "ssd_seconds": 1e-6}
"""Figures that a file of measured ones may leave out: a peer's memory counts as ten times as fast as the host's (NVLink
against PCIe), and an SSD does a million random reads per second."""
_FORM = (
    '{"device": "...", "feature_seconds": {"base": x, "per_byte": y}, "list_seconds": a, "neighbour_seconds": b}, '
    "in seconds"
)


@dataclass(frozen=True)
class AccessCosts:
    """Seconds that an access to host memory takes longer than one to the GPU's, with all accesses of a batch in flight.

    Costs are per feature row and per byte of it, per adjacency list looked up, per neighbour id drawn, and per read of
    up to `SSD_READ_BYTES` from one SSD, in addition to host memory; a peer's memory saves `peer_share` of a row's. By
    default a list's begin and end, and each neighbour id, cost one scattered sector of 32 B, 2.53 ns. A feature row
    costs its bytes at 25 GB/s, 0.0396 ns each, and one sector, because rows begin and end inside sectors.
    """

    feature_base: float = SAVED / SECTORS_PER_SECOND
    feature_per_byte: float = SAVED / WIDE_BYTES_PER_SECOND
    list_seconds: float = SAVED / SECTORS_PER_SECOND
    neighbour_seconds: float = SAVED / SECTORS_PER_SECOND
    peer_share: float = _ASSUMED["peer_share"]
    ssd_seconds: float = _ASSUMED["ssd_seconds"]
    source: str = ASSUMED  # ``assumed``, or ``measured on`` and the device

    def feature(self, row_bytes: int) -> float:
        """Return the seconds that an access to a feature row of `row_bytes` bytes on the GPU saves."""
        return self.feature_base + self.feature_per_byte * row_bytes

    def saved_by_tiers(self, gpu: Any, shared: Any, before_ssd: Any) -> Any:
        """Return the seconds that tiers save; numbers or arrays.

        `gpu` and `shared` are the seconds that rows on the GPU, and on the GPU and its peers, save if all lie on the
        GPU; `before_ssd` those that rows of these tiers and of host memory save against SSDs.
        """
        return gpu + self.peer_share * (shared - gpu) + before_ssd

    def to_json(self) -> dict[str, Any]:
        """Return the figures in the form of the file, with ``source`` for ``device``."""
        feature = {"base": self.feature_base, "per_byte": self.feature_per_byte}
        others = ("list_seconds", "neighbour_seconds", "peer_share", "ssd_seconds")
        return {"source": self.source, "feature_seconds": feature, **{name: getattr(self, name) for name in others}}


def read_access_costs(path: str | os.PathLike[str]) -> AccessCosts:
    """Read measured figures from a JSON file: ``device``, and seconds from 0 to 1 as in `AccessCosts.to_json`.

    ``peer_share`` and ``ssd_seconds`` are optional.
    """
    file, where = Path(path), f"access costs: {path}"
    if not file.is_file():
        raise MissingError(f"{where}: no such file; leave --access-costs out for assumed figures")
    try:
        document = json.loads(file.read_text())
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: not valid JSON ({error}); expected {_FORM}") from None
    _check_fields(document, ("device", "feature_seconds", "list_seconds", "neighbour_seconds"), _ASSUMED, where)
    feature, device = document["feature_seconds"], document["device"]
    _check_fields(feature, ("base", "per_byte"), {}, f"{where}: feature_seconds")
    if not isinstance(device, str) or not device.strip():
        raise InputError(f"{where}: device: expected the name of the device measured, found {device!r}")
    seconds = {**_ASSUMED, **document, **{f"feature_seconds.{name}": feature[name] for name in feature}}
    names = ("feature_seconds.base", "feature_seconds.per_byte", "list_seconds", "neighbour_seconds", *_ASSUMED)
    base, per_byte, lists, neighbours, peers, ssd = (_at_most_one(seconds[name], f"{where}: {name}") for name in names)
    if not any((base, per_byte, lists, neighbours)):
        raise InputError(f"{where}: expected seconds above 0 for features or lists, found 0 for all; measure again")
    return AccessCosts(base, per_byte, lists, neighbours, peers, ssd, f"measured on {device.strip()}")


def _check_fields(document: Any, required: Collection[str], optional: Collection[str], where: str) -> None:
    if not isinstance(document, dict):
        raise InputError(f"{where}: expected an object {_FORM}, found {document!r}")
    missing, unknown = [n for n in required if n not in document], sorted({*document} - {*required} - {*optional})
    if missing or unknown:
        wrong = f"no {', '.join(missing)}" if missing else f"unknown {', '.join(unknown)}"
        raise InputError(f"{where}: expected {', '.join(required)}, found {wrong}; the form is {_FORM}")


def _at_most_one(value: Any, where: str) -> float:
    """Check a fraction, or seconds per access, which are far below 1."""
    what = "a fraction" if where.endswith("peer_share") else "seconds per access"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value < 0:
        raise InputError(f"{where}: expected {what}, a finite number of 0 or more, found {value!r}")
    if value > 1:
        hint = "" if what == "a fraction" else "; are these nanoseconds?"
        raise InputError(f"{where}: expected {what}, at most 1, found {value!r}{hint}")
    return float(value)
