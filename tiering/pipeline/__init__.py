"""The stages, composed: one function per command, and the whole chain from one file. No algorithms here."""

from tiering.pipeline.predict import predict_import, predict_layout, predict_reorder, predict_score
from tiering.pipeline.predict_chain import predict_run
from tiering.pipeline.run import run_config
from tiering.pipeline.stages import import_dataset, layout, reorder, score, transpose

__all__ = [
    "import_dataset",
    "layout",
    "predict_import",
    "predict_layout",
    "predict_reorder",
    "predict_run",
    "predict_score",
    "reorder",
    "run_config",
    "score",
    "transpose",
]
