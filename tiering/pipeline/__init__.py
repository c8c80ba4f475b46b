"""The stages, composed: one function per command, and the whole chain from one file. No algorithms here."""

from tiering.pipeline.run import run_config
from tiering.pipeline.stages import import_dataset, layout, reorder, score, transpose

__all__ = ["import_dataset", "layout", "reorder", "run_config", "score", "transpose"]
