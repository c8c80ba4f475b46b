"""Reference kernels of the GPU benchmarks: they compile, and compute what they should, on the processor here."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")


from benchmarks.gpu import nvme, reference, sampling  # noqa: E402
from benchmarks.gpu.peer_samplers import wrong_draw  # noqa: E402
from benchmarks.gpu.side import GpuSide  # noqa: E402
from benchmarks.harness import Sizes  # noqa: E402
from benchmarks.sampling import SamplingTask  # noqa: E402
from tiering.errors import CapabilityError  # noqa: E402
from tiering.sampling import SamplingOptions, make_sampler  # noqa: E402

PROCESSOR = Path(__file__).parent / "reference_host" / "processor.hpp"


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """The same sources compiled for the processor."""
    if (compiler := shutil.which("c++")) is None:
        pytest.skip("no C++ compiler")
    out = tmp_path_factory.mktemp("reference") / "reference.so"
    sources = [*reference.SOURCES.glob("*.cu")]
    flags = ["-std=c++20", "-O1", "-fPIC", "-shared", "-pthread", "-include", PROCESSOR, "-x", "c++"]
    subprocess.run([compiler, *flags, *sources, "-o", out], check=True)
    return reference.Reference(out)


def aligned(nbytes, offset):
    """Bytes from so many behind a line of 128 on."""
    room = torch.zeros(nbytes + 256, dtype=torch.uint8)
    begin = -room.data_ptr() % 128 + offset
    return room[begin : begin + nbytes]


@pytest.mark.parametrize("kind", [reference.BY_WARPS, reference.STAGED])
@pytest.mark.parametrize(("row_bytes", "offset", "out_offset"), [(512, 0, 0), (2408, 16, 0), (60, 4, 8), (4096, 0, 64)])
def test_rows_are_those_of_the_table(kernels, kind, row_bytes, offset, out_offset):
    rng = np.random.default_rng(1)
    table, out = aligned(40 * row_bytes, offset), aligned(21 * row_bytes, out_offset)
    table[:] = torch.from_numpy(rng.integers(1, 256, len(table)).astype(np.uint8))
    table, out = table.view(40, row_bytes), out.view(21, row_bytes)
    ids = torch.from_numpy(rng.permutation(40)[:20])
    kernels.gather(kind, table.data_ptr(), ids, out, row_bytes, 0)
    assert torch.equal(out[:20], table[ids]) and not out[20].any()


def graph(nodes=60):
    """Lists of 0, 1, 2, ... neighbours, shuffled, none twice in a list."""
    rng = np.random.default_rng(2)
    degrees = rng.permutation(nodes)
    lists = [rng.permutation(nodes)[:degree] for degree in degrees]
    return np.concatenate([[0], np.cumsum(degrees)]), np.concatenate(lists).astype(np.int32)


@pytest.mark.parametrize("id_type", [np.int32, np.int64])
def test_neighbours_are_drawn_without_replacement(kernels, id_type):
    indptr, indices = graph()
    indices = indices.astype(id_type)
    nodes = torch.from_numpy(np.random.default_rng(3).permutation(60)[:50])
    where = (indptr.ctypes.data, indices.ctypes.data, indices.itemsize)
    draws = [tuple(part.numpy() for part in kernels.draw(*where, nodes, 10, seed, 0)) for seed in (1, 1, 2)]
    for sources, destinations in draws:
        assert wrong_draw((indptr, indices), nodes.numpy(), 10, sources, destinations) == ""
    assert (draws[0][0] == draws[1][0]).all() and (draws[0][0] != draws[2][0]).any()


def test_wrong_draws_are_found():
    csc = np.array([0, 3, 5]), np.array([4, 5, 5, 1, 2])
    nodes, right = np.array([0, 1]), ([5, 5, 1, 2], [0, 0, 1, 1])

    def wrong(sources, destinations):
        return wrong_draw(csc, nodes, 2, np.array(sources), np.array(destinations))

    assert wrong(*right) == ""
    assert "node 0: expected 2 neighbours, found 1" in wrong([5, 1, 2], [0, 1, 1])
    assert "node 1: a neighbour that its list does not have" in wrong([5, 5, 1, 1], right[1])
    assert "node 1: a neighbour that its list does not have" in wrong([5, 5, 1, 9], right[1])


def test_what_the_compiler_says_is_said(tmp_path):
    compiler = tmp_path / "nvcc"
    compiler.write_text("#!/bin/sh\necho 'no such architecture' >&2\nexit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(CapabilityError, match=r"cannot compile .*reference: no such architecture"):
        reference.compile_reference(str(compiler), "sm_10", tmp_path / "cache")


@pytest.fixture
def nvcc():
    if (found := reference.find_nvcc()) is None:
        pytest.skip("no nvcc")
    return found


@pytest.mark.slow
def test_nvcc_compiles_the_gathers(nvcc, tmp_path, monkeypatch):
    """Without the sort of CUDA's own library, which takes nvcc ten times as long."""
    few = tmp_path / "sources"
    few.mkdir()
    for name in ("gather.cu", "launch.hpp"):
        shutil.copy(reference.SOURCES / name, few)
    monkeypatch.setattr(reference, "SOURCES", few)
    library = reference.compile_reference(nvcc, "sm_90", tmp_path / "made")
    made = library.stat().st_mtime_ns
    assert reference.compile_reference(nvcc, "sm_90", tmp_path / "made").stat().st_mtime_ns == made
    assert [file.name for file in (tmp_path / "made").iterdir()] == [library.name]
    with (few / "gather.cu").open("a") as source:
        source.write("static void unused() {}\n")  # another source is another library; a warning is an error
    with pytest.raises(CapabilityError, match="unused"):
        reference.compile_reference(nvcc, "sm_90", tmp_path / "made")


@pytest.mark.long
def test_nvcc_compiles_the_played_drive(nvcc, tmp_path):
    library = ctypes.CDLL(str(nvme.compile_program(nvcc, "sm_90", tmp_path)))
    assert library.nvme_begin and library.nvme_end


@pytest.mark.long
def test_nvcc_compiles_all_reference_kernels(nvcc, tmp_path):
    reference.Reference(reference.compile_reference(nvcc, "sm_90", tmp_path))


def gpu_side():
    return GpuSide(Sizes(image_bytes=1 << 16, seconds=0.001, threads=1))


def test_gathers_that_are_wrong_are_not_timed(kernels, gpu, monkeypatch):
    side = gpu_side()
    monkeypatch.setattr(reference, "load", lambda gpu: kernels)
    table, ids = torch.arange(1.0, 321.0).view(20, 16), [torch.tensor([3, 1, 9]), torch.tensor([7, 0])]
    out = torch.zeros(3, 16)
    works = reference.gathers(side, table.data_ptr(), ids, out, table[ids[-1]])
    assert list(works) == [reference.BY_WARPS, reference.STAGED]
    for work in works.values():
        out.zero_()
        work()
        assert torch.equal(out, table[[7, 0, 9]])
    works = reference.gathers(side, table.data_ptr(), ids, out, table[[7, 1]])
    assert set(works.values()) == {"not measured: its rows are not the table's"}
    monkeypatch.setitem(kernels._functions, "gather", lambda *_: 700)
    works = reference.gathers(side, table.data_ptr(), ids, out, table[ids[-1]])
    assert set(works.values()) == {"not measured: reference kernel gather: CUDA error 700"}


@pytest.mark.parametrize("local", [False, True])
def test_sampling_by_reference_kernels(kernels, gpu, monkeypatch, local):
    side = gpu_side()
    monkeypatch.setattr(sampling, "load", lambda gpu: kernels)
    task = SamplingTask(graph(), np.array([[5, 7], [11, 12]]), SamplingOptions((2, 1), 2), 1)
    host = make_sampler(task, task.options)
    edges = sum(host.sample(seeds, batch=b).num_edges for b, seeds in enumerate(task.seeds))
    seeds = [torch.from_numpy(batch) for batch in task.seeds]
    work = sampling._reference(side, task, seeds, local, edges)
    assert callable(work) and 0 < work() <= 2 * (2 * 2 + 6)
    monkeypatch.setattr(sampling, "wrong_draw", lambda *_: "node 5: what it is")
    assert sampling._reference(side, task, seeds, local, edges) == "not measured: node 5: what it is"
    monkeypatch.setitem(kernels._functions, "sort", lambda *_: 2)
    assert sampling._reference(side, task, seeds, local, edges) == "not measured: reference kernel sort: CUDA error 2"
