"""Inference stays within its memory, messages and outputs of the functions included, where the rows do not fit."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import numpy as np
import pytest
from inferred import Sage, digest, odd_graph
from peaks import peak_memory, settle
from tight_memory import spare

from tiering.errors import BudgetError

PROGRAM = """
import json, sys
import torch, tiering
from inferred import Sage
from peaks import peak_memory
from tiering.memory import own_memory

layout, model = tiering.open(sys.argv[1]), Sage(128, 128, 16)
torch.mm(torch.ones(500, 500), torch.ones(500, 500))
limit = (int(sys.argv[3]) << 20) + own_memory()
with peak_memory() as peak:
    layout.inference(model.layers, sys.argv[2], memory=limit, edges=8000)
print(json.dumps({"peak": peak.bytes, "limit": limit}))
"""


@pytest.mark.slow
@pytest.mark.parametrize("allowance", [130])
def test_memory_is_kept(tiering_cli, tmp_path, allowance):
    """Rows of 400,000 nodes are 195 MiB; besides torch itself there may be so many."""
    for words in (
        "generate {0}/data --nodes 400000 --edges 3200000 --dim 128 --classes 4",
        "import {0}/data --out {0}/g",
        "score {0}/g --out {0}/s --method wrpr",
        "reorder {0}/g --scores {0}/s --out {0}/r",
        "layout {0}/r --out {0}/l --cpu 0 --ssd {0}/ssd",
    ):
        tiering_cli(*words.format(tmp_path).split()).ok()
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "l"), str(tmp_path / "e"), str(allowance)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["limit"] // 2 < told["peak"] <= told["limit"]


def test_blocks_shrink_to_the_memory(kit, build, tmp_path, capsys):
    """Blocks that are chosen are the largest that work; they are recorded, and give the same bytes in more memory."""
    layout, model, tight = build(odd_graph(kit, 30_000, 1024)), Sage(1024, 16, 8), {"order": "rank"}
    settle()
    with pytest.raises(BudgetError, match="memory: "):
        layout.inference(model.layers, tmp_path / "none", edges=50_000, memory=spare(110 << 20).limit, **tight)
    found = layout.inference(model.layers, tmp_path / "e", memory=spare(110 << 20).limit, **tight)
    edges = found.manifest.provenance["options"]["edges"]
    assert 800 <= edges < 50_000 and f"order rank, blocks of {edges:,} edges" in capsys.readouterr().err
    assert digest(found) == digest(layout.inference(model.layers, tmp_path / "more", edges=edges, **tight))
    with pytest.raises(BudgetError, match="memory: "):
        layout.inference(model.layers, tmp_path / "less", memory=spare(6 << 20).limit, **tight)


def test_a_hub_that_does_not_fit_is_refused_with_advice_that_suffices(kit, build, tmp_path):
    """Its in-list cannot be cut, however few edges a block has."""
    data, model = odd_graph(kit, 30_000, 256), Sage(256, 16, 8)
    relation = next(iter(data.edges))
    src, dst = data.edges[relation]
    data.edges[relation] = np.r_[src, np.arange(20_000)], np.r_[dst, np.full(20_000, 7)]
    data.weights = {}
    layout = build(data)
    settle()
    told = r"layer 0: blocks of 800 edges, the largest of 2\d{4}, and a buffer for rows, need"
    with pytest.raises(BudgetError, match=told) as refused:
        layout.inference(model.layers, tmp_path / "e", memory=spare(85 << 20).limit, order="rank")
    advised = re.search(r'give memory="(\w+)" or more', str(refused.value))[1]
    layout.inference(model.layers, tmp_path / "e", memory=advised, order="rank")


def test_a_trial_takes_no_memory_that_there_is_not(kit, build, tmp_path):
    """Rows of the block of a trial are counted before they are made."""
    layout, model = build(odd_graph(kit, 30_000, 1024)), Sage(1024, 16, 8)
    settle()
    limit = spare(24 << 20).limit
    with peak_memory() as peak, pytest.raises(BudgetError, match=r"layer 0: rows of a block of .* edges, read"):
        layout.inference(model.layers, tmp_path / "e", edges=50_000, memory=limit, order="rank")
    assert peak.bytes < limit + (24 << 20)
