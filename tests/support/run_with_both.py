"""Runs an example twice in a process of ``torchrun``, from tiers and from memory: ``run_with_both.py EXAMPLE ...``."""

import os
import runpy
import sys

if __name__ == "__main__":
    _, example, *arguments = sys.argv
    for features in ("tiers", "memory"):
        sys.argv = [example, *arguments, "--features", features]
        runpy.run_path(example, run_name="__main__")
        # A process group cannot be made again over the launcher's store: the next one gets a store of its own.
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = "False"
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + 1)
