"""Exports: what a layout or graph holds, in the formats of other programs."""

from tiering.exports.export import Export, checked_kind, write_export
from tiering.exports.kinds import KINDS
from tiering.exports.plan import plan_export
from tiering.exports.raw_devices import check_devices, predict_devices, write_devices
from tiering.exports.source import Source
from tiering.formats.raw_devices import RawExport

__all__ = [
    "KINDS",
    "Export",
    "RawExport",
    "Source",
    "check_devices",
    "checked_kind",
    "plan_export",
    "predict_devices",
    "write_devices",
    "write_export",
]
