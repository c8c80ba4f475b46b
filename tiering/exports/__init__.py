"""Exports: a layout or graph as ``.npy`` files, which other programs read."""

from tiering.exports.export import Export, write_export
from tiering.exports.plan import plan_export
from tiering.exports.source import ExportSource

__all__ = ["Export", "ExportSource", "plan_export", "write_export"]
