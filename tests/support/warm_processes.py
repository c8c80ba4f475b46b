"""Processes forked from a server that has torch, this package and the programs of tests loaded.

Loading them takes longer than what most of these processes do. Imported as `warm_processes` it is what tests start
them with; the server imports `warm_modules`, and has not touched the simulated GPU.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing import forkserver
from pathlib import Path
from typing import Any


def context() -> Any:
    """As of `multiprocessing.get_context`."""
    forkserver.set_forkserver_preload(["warm_modules"])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(__file__).parent)  # the server does not know sys.path of its parent
    try:
        forkserver.ensure_running()
    finally:
        del os.environ["PYTHONPATH"]
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return multiprocessing.get_context("forkserver")
