"""Adjacency lists spread over the GPUs of several processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.runtime.gpu import peer_lists
from tiering.runtime.gpu.peer_lists import Columns, end_of_columns

SUPPORT = str(Path(__file__).parents[2] / "support")
PROGRAM = """
import json, sys
import pytest
sys.path.insert(0, sys.argv[1])
from simulated_gpu import install
from tiering.formats.layout import Layout
from tiering.runtime import PeerGroup, open_layout

simulator = install(pytest.MonkeyPatch())
Layout.adjacency_columns = lambda self, relation=None: 20
group = PeerGroup(int(sys.argv[4]), int(sys.argv[5]), sys.argv[3], timeout=30)
layout = open_layout(sys.argv[2])
options = {"fanouts": "4,3", "batch_size": 32, "seed": 5, "features": None, "sampler": sys.argv[6]}
there = layout.loader(device="cuda", peers=group, peer_lists=sys.argv[7], **options)
held = there._batches.sampler.peer_columns
same = all(
    found.num_nodes == expected.num_nodes
    and all(found.nodes[t].equal(expected.nodes[t]) for t in expected.nodes)
    and all(a[r].equal(b[r]) for a, b in zip(found.hops, expected.hops, strict=True) for r in b)
    for found, expected in zip(there, layout.loader(**options), strict=True)
)
group.leave("done")
print(json.dumps({"same": same, "held": {":".join(r): n for r, n in held.items()}}))
"""


def columns_of(degrees, dtype=np.int32, sums=False):
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    edges = int(indptr[-1])
    return Columns(indptr, np.arange(edges, dtype=dtype), np.arange(edges, dtype=np.uint64) if sums else None)


@pytest.mark.parametrize("sampler", ["uniform", "weighted"])
@pytest.mark.parametrize(("data", "size", "nbytes"), [("small_graph", 3, "4KiB"), ("hetero_graph", 2, "1MiB")])
def test_lists_of_peers_give_the_same_batches(gpu, kit, build, tmp_path, sampler, data, size, nbytes):
    layout = build(getattr(kit, data)())
    arguments = [sys.executable, "-c", PROGRAM, SUPPORT, str(layout.path), str(tmp_path / "meet")]
    processes = [
        subprocess.Popen(
            [*arguments, str(rank), str(size), sampler, nbytes],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        for rank in range(size)
    ]
    held = []
    for process in processes:
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        found = json.loads(out.splitlines()[-1])
        assert found["same"]
        held.append(found["held"])
    assert all(each == held[0] for each in held)
    if data == "small_graph":
        assert 0 < held[0]["node:to:node"] < 280
    else:
        assert held[0]["paper:cites:paper"] == 180


@given(
    degrees=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    others=st.lists(st.integers(0, 30), min_size=1, max_size=30),
    begin=st.integers(0, 20),
    peers=st.integers(1, 5),
    nbytes=st.integers(0, 6000),
)
@settings(deadline=None, max_examples=200)
def test_no_gpu_holds_more_than_it_may(degrees, others, begin, peers, nbytes):
    relations = [columns_of(degrees), columns_of(others, np.int64, sums=True)]
    begins = [min(begin, len(degrees)), min(begin, len(others))]
    ends = end_of_columns(relations, begins, peers, nbytes)
    for peer in range(peers):
        held = 0
        for each, first, last in zip(relations, begins, ends, strict=True):
            assert first <= last < each.indptr.size
            mine = range(first + peer, last, peers)
            edges = sum(int(each.indptr[c + 1] - each.indptr[c]) for c in mine)
            held += each.share_bytes(first, last, peer, peers)
            assert each.share_bytes(first, last, peer, peers) == 8 * (2 * len(mine) + 1) + edges * each.edge_bytes
        least = sum(each.share_bytes(first, first, peer, peers) for each, first in zip(relations, begins, strict=True))
        assert held <= max(nbytes, least)


@pytest.mark.parametrize("piece", [1, 7, 1 << 24])
def test_lists_are_gathered_in_pieces(monkeypatch, piece):
    monkeypatch.setattr(peer_lists, "_PIECE_EDGES", piece)
    rng = np.random.default_rng(0)
    degrees = rng.integers(0, 12, 50)
    starts = np.concatenate([[0], np.cumsum(degrees)])[:-1]
    array = rng.integers(0, 1000, int(degrees.sum()))
    some = rng.permutation(50)[:30]
    expected = np.concatenate([array[starts[c] : starts[c] + degrees[c]] for c in some])
    pieces = list(peer_lists._lists(array, starts[some], degrees[some]))
    np.testing.assert_array_equal(np.concatenate(pieces), expected)
    assert all(each.size <= piece + 11 for each in pieces)


def test_nothing_to_gather():
    none = np.empty(0, np.int64)
    assert list(peer_lists._lists(np.arange(3), none, none)) == []
