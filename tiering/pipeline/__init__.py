"""The stages, composed: a function for each command, and its dry run; the whole chain from one file. No algorithms."""

from typing import TYPE_CHECKING, Any

from tiering.text.arguments import lazy_names, naming_files

if TYPE_CHECKING:
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
    from tiering.pipeline.copies import copy, relink
    from tiering.pipeline.epochs import plan_epochs
    from tiering.pipeline.html_report import report
    from tiering.pipeline.sources import estimate_spec

__all__ = [
    "copy", "estimate_export", "estimate_import", "estimate_layout", "estimate_reorder", "estimate_run",
    "estimate_score", "estimate_spec", "evaluate_scores", "export_layout", "import_graph", "layout", "plan_epochs",
    "relink", "reorder_graph", "report", "run_chain", "run_config", "score_graph", "write_layout",
]  # fmt: skip

if not TYPE_CHECKING:
    _load = lazy_names(__name__, "commands", "sources", "chain", "copies", "epochs", "html_report")

    def __getattr__(name: str) -> Any:
        """Load a command when it is requested, with what each has around it."""
        function = _load(name)
        from tiering.artifacts.storage import storage_errors

        globals()[name] = naming_files(storage_errors()(function))
        return globals()[name]
