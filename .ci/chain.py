"""Run the installed package in an empty folder: the chain and, where torch is installed, one epoch of the loader."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import tiering
from tiering.native import build_info

CHAIN = """
generate data --nodes 500 --edges 4000 --dim 16 --classes 4 --seed 0
import data --out graph
score graph --method wrpr --out scores
reorder graph --scores scores --out reordered
layout reordered --gpu 3% --cpu 20% --ssd ssd0 --out layout
check layout --full
"""


def run_chain() -> None:
    """Run the commands of `CHAIN` by the installed program."""
    program = Path(sysconfig.get_path("scripts")) / "tiering"
    for command in CHAIN.strip().splitlines():
        done = subprocess.run([program, *command.split()], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"tiering {command}: exit code {done.returncode}\n{done.stdout}{done.stderr}")


def run_loader() -> None:
    """Load one epoch, and compare all rows with the source's in the layout's order."""
    with tiering.open("layout") as layout:
        seeds = sum(len(batch.y) for batch in layout.loader("train", fanouts=[5, 5], batch_size=64, seed=0))
        rows = layout.features("paper").gather(np.arange(500)).numpy()
    if seeds != len(np.load("data/processed/paper/train_idx.npy")):
        sys.exit(f"the loader gave {seeds} seeds")
    source = np.load("data/processed/paper/node_feat.npy")
    if sorted(map(bytes, rows)) != sorted(map(bytes, source)):
        sys.exit("the loader's rows differ from data/processed/paper/node_feat.npy")


def main() -> None:
    """Check where the package and its core come from, then run both."""
    if not str(tiering.__file__).startswith(sys.prefix) or not build_info()["liburing"].startswith("liburing"):
        sys.exit(f"expected an installed package with io_uring, found {tiering.__file__}: {build_info()['liburing']}")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run_chain()
        if torch := find_spec("torch") is not None:
            run_loader()
        os.chdir("/")
    print(f"tiering runs on Python {sys.version.split()[0]}: the chain{' and the loader' if torch else ''}")


if __name__ == "__main__":
    main()
