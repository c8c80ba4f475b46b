"""Exports: a layout or graph as ``.npy`` files, which other programs read."""

from tiering.exports.arrays import ExportPlan
from tiering.exports.export import Export, write_export

__all__ = ["Export", "ExportPlan", "write_export"]
