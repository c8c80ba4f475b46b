"""The peer adjacency cache: lists spread over the GPUs of several processes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from peer_programs import sample, start

from tiering.loader.gpu.adjacency import HostLists, cached_ends, list_pieces


def columns_of(degrees, dtype=np.int32, sums=False):
    indptr = np.concatenate([[0], np.cumsum(degrees)]).astype(np.int64)
    edges = int(indptr[-1])
    return HostLists(indptr, np.arange(edges, dtype=dtype), np.arange(edges, dtype=np.uint64) if sums else None)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sampler", "reach"), [("uniform", "on"), ("weighted", "on"), ("uniform", "off"), ("uniform", "unshared")]
)
@pytest.mark.parametrize(("data", "size", "nbytes"), [("small_graph", 3, "4KiB"), ("hetero_graph", 2, "1MiB")])
def test_lists_of_peers_give_the_same_batches(gpu, kit, build, tmp_path, sampler, reach, data, size, nbytes):
    layout = build(getattr(kit, data)())
    folder = str(tmp_path)
    environment = {"TIERING_SIMULATED_DEVICES": "3", "TIERING_SIMULATED_PEERS": reach}
    environment["TIERING_SIMULATED_IPC"] = "off" if reach == "unshared" else "on"
    ranks = [
        start(sample, str(layout.path), folder, rank, size, sampler, nbytes, environment=environment)
        for rank in range(size)
    ]
    cached = []
    for process in ranks:
        answer = process.receive()
        assert answer["same"]
        cached.append(answer["cached"])
    assert [process.end() for process in ranks] == [0] * size
    assert all(columns == cached[0] for columns in cached)
    if reach != "on":
        assert not any(cached[0].values())
    elif data == "small_graph":
        assert 0 < cached[0]["node:to:node"] < 280
    else:
        assert cached[0]["paper:cites:paper"] == 180


@given(
    degrees=st.lists(st.integers(0, 30), min_size=1, max_size=60),
    others=st.lists(st.integers(0, 30), min_size=1, max_size=30),
    begin=st.integers(0, 20),
    peers=st.integers(1, 5),
    nbytes=st.integers(0, 6000),
)
@settings(max_examples=200)
def test_no_gpu_holds_more_than_it_may(degrees, others, begin, peers, nbytes):
    relations = [columns_of(degrees), columns_of(others, np.int64, sums=True)]
    begins = [min(begin, len(degrees)), min(begin, len(others))]
    ends = cached_ends(relations, begins, peers, nbytes)
    for peer in range(peers):
        held = 0
        for each, first, last in zip(relations, begins, ends, strict=True):
            assert first <= last < each.indptr.size
            mine = range(first + peer, last, peers)
            edge_bytes = each.indices.itemsize + (0 if each.sums is None else 8)
            edges = sum(int(each.indptr[c + 1] - each.indptr[c]) for c in mine)
            held += each.share_bytes(first, last, peer, peers)
            assert each.share_bytes(first, last, peer, peers) == 8 * (2 * len(mine) + 1) + edges * edge_bytes
        least = sum(each.share_bytes(first, first, peer, peers) for each, first in zip(relations, begins, strict=True))
        assert held <= max(nbytes, least)


@pytest.mark.parametrize("piece", [1, 7, 1 << 24])
def test_lists_are_gathered_in_pieces(piece):
    rng = np.random.default_rng(0)
    degrees = rng.integers(0, 12, 50)
    starts = np.concatenate([[0], np.cumsum(degrees)])[:-1]
    array = rng.integers(0, 1000, int(degrees.sum()))
    some = rng.permutation(50)[:30]
    expected = np.concatenate([array[starts[c] : starts[c] + degrees[c]] for c in some])
    pieces = list(list_pieces(array, starts[some], degrees[some], piece))
    np.testing.assert_array_equal(np.concatenate(pieces), expected)
    assert all(each.size <= piece + 11 for each in pieces)


def test_nothing_to_gather():
    none = np.empty(0, np.int64)
    assert list(list_pieces(np.arange(3), none, none)) == []
