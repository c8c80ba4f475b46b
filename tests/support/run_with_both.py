"""Runs an example twice in one process, from tiers and from memory: ``run_with_both.py EXAMPLE LAYOUT OPTIONS...``."""

import runpy
import sys

if __name__ == "__main__":
    _, example, *arguments = sys.argv
    for features in ("tiers", "memory"):
        sys.argv = [example, *arguments, "--features", features]
        runpy.run_path(example, run_name="__main__")
