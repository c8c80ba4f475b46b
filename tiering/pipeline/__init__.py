"""The stages, composed: a function for each command, and its dry run; the whole chain from one file. No algorithms."""

from tiering.arguments import naming_files
from tiering.artifacts.storage import storage_errors
from tiering.pipeline.chain import estimate_run, run_chain, run_config
from tiering.pipeline.commands import (
    estimate_export,
    estimate_import,
    estimate_layout,
    estimate_reorder,
    estimate_score,
    evaluate_scores,
    export_layout,
    import_graph,
    layout,
    reorder_graph,
    score_graph,
    write_layout,
)
from tiering.pipeline.sources import estimate_spec

__all__ = [
    "estimate_export", "estimate_import", "estimate_layout", "estimate_reorder", "estimate_run", "estimate_score",
    "estimate_spec", "evaluate_scores", "export_layout", "import_graph", "layout",
    "reorder_graph", "run_chain", "run_config", "score_graph", "write_layout",
]  # fmt: skip

for _name in __all__:
    globals()[_name] = naming_files(storage_errors()(globals()[_name]))
