"""A budget that is too small: the message names one, and with exactly that the same command works."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from warm_processes import interpret

pytestmark = pytest.mark.slow

# Tables count as larger than memory: their rows come by windows of chunks of so many MiB.
SCRIPT = """
import sys
from tiering.reorder.rows import plan
plan.SIZES = plan.RowSizes(int(sys.argv[1]) << 20, free=0)
from tiering.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
LAYOUT = "layout reordered --out out --gpu 4MiB --cpu 20% --ssd disks/a --ssd disks/b --force"
COMMANDS = {
    "layout by passes": f"32 {LAYOUT}",
    "layout by a scatter": f"8 {LAYOUT}",
    "layout with a split": f"8 {LAYOUT} --adjacency-cache auto --scores scores",
    "reorder": "8 reorder graph --scores scores --out out --force",
    "reorder --features": "8 reorder graph --scores scores --out out --features --force",
    "import": "8 import data --out out --edge-ids --force",
    "import with changes": "8 import data --out out --reverse-edges --deduplicate --force",
    "evaluate": "8 evaluate graph --scores scores --fanouts 3,3 --epochs 1",
    **{
        f"score by {method}": f"8 score graph --method {method} --out out --fanouts 3,3 --force"
        for method in ("degree", "rpr", "wrpr", "presample", "vip", "hybrid")
    },
}


def run(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return interpret(SCRIPT, *command.split(), cwd=folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Artifacts with tables of 20 MiB and more, of several types."""
    folder = tmp_path_factory.mktemp("advice")
    for command in (
        "8 generate data --nodes 30000 --edges 200000 --dim 512 --hetero",
        "8 import data --out graph --edge-ids",
        "8 score graph --out scores --method vip --fanouts 3,3",
        "8 reorder graph --scores scores --out reordered",
    ):
        assert run(command, folder).returncode == 0
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_advised_is_enough(folder: Path, command: str) -> None:
    refused = run(f"{COMMANDS[command]} --memory 1MiB", folder)
    advised = re.search(r"; give --memory (\d+MiB) or more$", refused.stderr.strip())
    assert refused.returncode == 1 and advised, refused.stderr
    found = run(f"{COMMANDS[command]} --memory {advised.group(1)}", folder)
    assert found.returncode == 0, refused.stderr + found.stderr
