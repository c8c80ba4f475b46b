"""Exports: what a layout or graph holds, in the formats of other programs."""

from tiering.exports.export import Export, checked_kind, write_export
from tiering.exports.kinds import KINDS
from tiering.exports.plan import plan_export
from tiering.exports.source import Source

__all__ = [
    "KINDS",
    "Export",
    "Source",
    "checked_kind",
    "plan_export",
    "write_export",
]
