"""Exports: a layout or graph as ``.npy`` files, which other programs read."""

from typing import TYPE_CHECKING

from tiering.arguments import lazy_names

__all__ = ["Export", "ExportPlan", "write_export"]

if TYPE_CHECKING:
    from tiering.exports.arrays import ExportPlan
    from tiering.exports.export import Export, write_export
else:
    __getattr__ = lazy_names(__name__, "arrays", "export")
