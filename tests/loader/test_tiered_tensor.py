"""Tiered tensors, in host memory: rows as indexing the tensor gives them."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from child_process import in_child
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

import tiering
from tiering.codecs import fit_codec
from tiering.errors import BudgetError, CapabilityError, InputError
from tiering.loader.tiered_tensor import source as source_module

EXAMPLES = Path(__file__).parents[2] / "data_specs" / "examples"
forks = pytest.mark.filterwarnings("ignore:This process.*is multi-threaded:DeprecationWarning")
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64]


def random_tensor(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    """Random bytes as numbers; of floats only such that equal themselves."""
    generator = torch.Generator().manual_seed(seed)
    numbers = torch.randint(0, 200, shape, generator=generator)
    return numbers.to(dtype)


def map_file(tensor: torch.Tensor, path: Path, offset: int = 0) -> torch.Tensor:
    """The tensor mapped from a file, which it begins `offset` bytes behind."""
    nbytes = tensor.numel() * tensor.element_size()
    path.write_bytes(b"x" * offset + tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    mapped = np.memmap(path, np.uint8, "r+", offset, (nbytes,))
    return torch.from_numpy(mapped).view(tensor.dtype).view(tensor.shape)


@st.composite
def requests(draw: Any) -> tuple[torch.Tensor, Any, Any, float]:
    rows = draw(st.integers(0, 40))
    trailing = draw(st.lists(st.integers(1, 5), max_size=2))
    tensor = random_tensor((rows, *trailing), draw(st.sampled_from(DTYPES)), draw(st.integers(0, 9)))
    scores = draw(
        st.none()
        | st.lists(st.integers(-3, 3), min_size=rows, max_size=rows).map(lambda values: np.array(values, np.int32))
        | st.lists(st.floats(allow_nan=False), min_size=rows, max_size=rows).map(np.array)
    )
    ids = np.array(draw(st.lists(st.integers(0, rows - 1), max_size=60)) if rows else [])
    kind = draw(st.sampled_from([np.int32, np.int64, torch.int32, torch.int64]))
    wanted = torch.tensor(ids, dtype=kind) if isinstance(kind, torch.dtype) else ids.astype(kind)
    return tensor, scores, wanted, draw(st.sampled_from([0, 0.1, 0.5, 1]))


@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(request=requests(), on_disk=st.booleans(), offset=st.sampled_from([0, 3 * 16, 4096 + 16]))
def test_rows_are_those_of_the_tensor(tmp_path, request, on_disk, offset):
    tensor, scores, ids, share = request
    expected = tensor[torch.as_tensor(ids).long()]
    source = map_file(tensor, tmp_path / "table", offset) if on_disk and len(tensor) else tensor
    size = int(share * len(tensor)) * (tensor[:1].numel() * tensor.element_size())
    with tiering.tiered(source, cpu=size, order=scores, device="cpu", threads=2) as tiered:
        assert (tiered.shape, tiered.dtype, len(tiered)) == (tensor.shape, tensor.dtype, len(tensor))
        rows = tiered[ids]
        assert (rows.shape, rows.dtype, rows.device) == (expected.shape, expected.dtype, torch.device("cpu"))
        assert torch.equal(rows, expected)
        out = torch.full_like(expected, 1)
        assert tiered.gather(ids, out=out) is out
        assert torch.equal(out, expected)
        if source is not tensor:
            assert tiered.placement()["cpu"]["rows"] == int(share * len(tensor))


def test_the_hottest_rows_are_copied(tmp_path):
    tensor = random_tensor((100, 4))
    scores = np.zeros(100)
    scores[[7, 90, 13]] = 5, 9, 5
    mapped = map_file(tensor, tmp_path / "table")
    tiered = tiering.tiered(mapped, cpu=5 * 16, order=torch.tensor(scores), device="cpu")
    tiered[np.array([7, 90, 13, 0, 1])]  # ties are broken by row number
    assert {tier: served.rows for tier, served in tiered.counters.tiers.items()}["cpu"] == 5
    tiered[np.array([2, 99])]
    assert {tier: served.rows for tier, served in tiered.counters.tiers.items()}["ssd"] == 2
    first = tiering.tiered(mapped, cpu=5 * 16, device="cpu")
    first[np.arange(100)]
    assert first.counters.tiers["cpu"].rows == 5
    assert first._table is None, "without an order there is no table"
    text = (
        f"<TieredTensor (100, 4) torch.float32 on cpu: 5 rows in host memory; 95 rows in {tmp_path / 'table'} (mapped)>"
    )
    assert repr(tiered) == repr(first) == text


def test_a_tensor_in_memory_is_not_copied():
    tensor = random_tensor((100, 4))
    tiered = tiering.tiered(tensor, cpu="50%", order=np.arange(100), device="cpu")
    assert tiered.placement()["cpu"] == {"rows": 100, "bytes": 1600, "where": "host memory"}
    assert (tiered._placement.copied, tiered._table) == (0, None)
    tensor[3] = 77  # seen at once: it is the tensor itself
    assert tiered[[3]].tolist() == [[77] * 4]


def test_auto_copies_what_fits_free_memory(tmp_path, monkeypatch):
    mapped = map_file(random_tensor((100, 16)), tmp_path / "table")
    assert tiering.tiered(mapped, device="cpu").placement()["cpu"]["rows"] == 100
    monkeypatch.setattr(source_module, "available_memory", lambda: 4000)  # 0.8 of it, less 8 bytes a row
    assert tiering.tiered(mapped, device="cpu").placement()["cpu"]["rows"] == (3200 - 800) // 64
    with pytest.raises(
        BudgetError, match=r"cpu: copies .* need 6\.25 KiB, but only 3\.906 KiB of memory are free; give a"
    ):
        tiering.tiered(mapped, cpu="100%", device="cpu")


@pytest.mark.parametrize("kind", ["memmap", "a slice of it", "read-only", "torch.from_file", "torch.load"])
def test_kinds_of_mapped_tensors(tmp_path, kind):
    tensor = random_tensor((60, 8))
    path = tmp_path / "a file"
    np.save(path, tensor.numpy())
    path = path.with_suffix(".npy")
    if kind == "torch.from_file":
        path.write_bytes(tensor.numpy().tobytes())
        mapped: Any = torch.from_file(str(path), shared=True, size=480, dtype=torch.float32).view(60, 8)
    elif kind == "torch.load":
        torch.save(tensor, path)
        mapped = torch.load(path, mmap=True)
    else:
        mapped = np.load(path, mmap_mode="r" if kind == "read-only" else "r+")
    if kind == "a slice of it":
        mapped, tensor = mapped[7:50], tensor[7:50]
    ids = np.random.default_rng(0).integers(0, len(tensor), 200)
    tiered = tiering.tiered(mapped, cpu=10 * 32, order=np.arange(len(tensor)), device="cpu")
    assert tiered.placement()["ssd"] == {
        "rows": len(tensor) - 10,
        "bytes": (len(tensor) - 10) * 32,
        "where": f"{path} (mapped)",
    }
    assert torch.equal(tiered[ids], tensor[ids])


def test_scores_of_an_artifact(tmp_path):
    data = tiering.generate_dataset(tmp_path / "data", nodes=50, edges=400, dim=4)
    graph = tiering.import_graph(data, out=tmp_path / "graph")
    scores = tiering.score_graph(graph, out=tmp_path / "scores", method="degree")
    mapped = map_file(random_tensor((50, 4)), tmp_path / "table")
    tiered = tiering.tiered(mapped, cpu=3 * 16, order=scores, device="cpu")
    tiered[np.argsort(-scores.values(), kind="stable")[:3]]
    assert tiered.counters.tiers["cpu"].rows == 3
    two_types = tiering.open(EXAMPLES / "scores")
    with pytest.raises(InputError, match=r"order: expected scores of one node type, found author, paper; pass scores"):
        tiering.tiered(mapped, order=two_types, device="cpu")


@forks
def test_forked_workers_of_a_data_loader(tmp_path):
    tensor = random_tensor((100, 8))
    for source in (map_file(tensor, tmp_path / "table"), tensor.clone(), tensor.numpy().copy()):
        tiered = tiering.tiered(source, cpu="30%", order=torch.rand(100), device="cpu", threads=1)
        sampler = BatchSampler(SequentialSampler(range(100)), 40, False)
        loader = DataLoader(tiered, None, sampler=sampler, num_workers=2, multiprocessing_context="fork")
        assert torch.equal(torch.cat(list(loader)), tensor)
        assert torch.equal(tiered[np.arange(100)], tensor), "it goes on here"


def test_pickling_is_refused_with_what_to_do_instead(tmp_path):
    tensor = random_tensor((50, 2))
    for source in (map_file(tensor, tmp_path / "table"), tensor, tensor.numpy()):
        tiered = tiering.tiered(source, device="cpu")
        with pytest.raises(CapabilityError, match=r"cannot be pickled .* make it in each process .*context='fork'"):
            pickle.dumps(tiered)
    loader = DataLoader(tiered, None, sampler=[[1]], num_workers=1, multiprocessing_context="spawn")
    with pytest.raises(CapabilityError, match="sent to a spawned one"):
        iter(loader)


def test_a_tensor_that_torch_moves():
    """``share_memory_`` frees the memory in which the tensor lay."""
    tensor = random_tensor((1000, 64))
    tiered = tiering.tiered(tensor, device="cpu")
    tensor.share_memory_()
    with pytest.raises(InputError, match=r"torch has moved the tensor to other memory .* share the tensor first"):
        tiered[[1]]
    assert torch.equal(tiering.tiered(tensor, device="cpu")[np.arange(1000)], tensor)


@forks
def test_a_child_that_closes_leaves_the_parent_alone(tmp_path):
    tensor = random_tensor((50, 8))
    tiered = tiering.tiered(map_file(tensor, tmp_path / "table"), cpu="50%", order=np.arange(50), device="cpu")

    def use() -> bool:
        same = torch.equal(tiered[np.arange(50)], tensor)
        tiered.close()
        return same and tiered.closed

    assert in_child(use)
    assert torch.equal(tiered[np.arange(50)], tensor)


@pytest.mark.parametrize("bad", [-1, 50, 2**40])
@pytest.mark.parametrize("order", [None, np.arange(50)])
def test_ids_out_of_range(tmp_path, bad, order):
    tiered = tiering.tiered(map_file(random_tensor((50, 2)), tmp_path / "table"), cpu="50%", order=order, device="cpu")
    out = torch.full((3, 2), 9.0)
    with pytest.raises(InputError, match=rf"tiered tensor: ids\[2\] is {bad}, outside 0..49"):
        tiered.gather(np.array([1, 2, bad]), out=out)
    assert (out == 9).all(), "nothing was written"


FIVE = torch.zeros(5, 2)


@pytest.mark.parametrize(("tensor", "options", "name", "message"), [
    ([[1.0]], {}, "tensor", "expected a torch tensor, NumPy array or memmap, found list"),
    (np.ma.zeros((2, 2)), {}, "tensor", "expected a torch tensor, NumPy array or memmap, found MaskedArray"),
    (torch.tensor(1.0), {}, "tensor", r"expected rows of at least one element, found shape \(\)"),
    (torch.zeros(3, 0), {}, "tensor", r"expected rows of at least one element, found shape \(3, 0\)"),
    (torch.zeros(6, 4)[:, :2], {}, "tensor", r"found shape \(6, 2\), .* pass a contiguous copy"),
    (torch.zeros(6, 4).t(), {}, "tensor", "expected a contiguous tensor"),
    (np.zeros((6, 4), order="F"), {}, "tensor", "expected a contiguous tensor"),
    (torch.zeros(4, 4).to_sparse(), {}, "tensor", "expected a dense tensor, found a torch.sparse_coo one"),
    (torch.zeros(2, 2, requires_grad=True), {}, "tensor", r"requires no gradient, .* pass tensor.detach\(\)"),
    (torch.zeros(2, 2, dtype=torch.complex64).conj(), {}, "tensor", "a view that is conjugated or negated"),
    (torch.zeros(2, 2, device="meta"), {}, "tensor", "expected one in host memory, or a memmap, found one on meta"),
    (np.zeros((2, 2), ">f4"), {}, "tensor", "expected elements that torch has a type for, found >f4"),
    (np.array([["a"]]), {}, "tensor", "expected elements that torch has a type for, found <U1"),
    (FIVE, {"order": np.zeros(4)}, "order", r"one score for each of 5 rows, found shape \(4,\)"),
    (FIVE, {"order": np.zeros((5, 1))}, "order", r"one score for each of 5 rows, found shape \(5, 1\)"),
    (FIVE, {"order": ["a"] * 5}, "order", "expected real numbers, one score per row, found <U1"),
    (FIVE, {"order": np.zeros(5, complex)}, "order", "expected real numbers, .* found complex128"),
    (FIVE, {"order": torch.zeros(5).to_sparse()}, "order", "expected one score per row, found Tensor"),
    (FIVE, {"order": np.array([0, 1, np.nan, 0, 0])}, "order", "expected numbers, found NaN as the score of row 2"),
    (FIVE, {"gpu": "auto"}, "gpu", "expected a size such as 2GiB, or a fraction .*, found 'auto'"),
    (FIVE, {"gpu": "7"}, "gpu", r"expected room for at least one row \(8 bytes\), found '7'"),
    (FIVE, {"gpu": "many"}, "gpu", "expected a size"),
    (FIVE, {"device": "gpu"}, "device", "expected cpu, cuda or cuda:N"),
    (FIVE, {"threads": 0}, "threads", "expected 1 to 1024"),
])  # fmt: skip
def test_arguments_that_are_refused(tensor, options, name, message):
    with pytest.raises(InputError, match=f"{name}: .*{message}"):
        tiering.tiered(tensor, **{"device": "cpu", **options})


def test_out_that_does_not_fit():
    tiered = tiering.tiered(torch.zeros(5, 2, 3), device="cpu")
    wrong = [torch.zeros(2, 6), torch.zeros(1, 2, 3), torch.zeros(2, 2, 3).double(), torch.zeros(2, 3, 2).mT]
    for out in wrong:
        with pytest.raises(
            InputError, match=r"out: expected a contiguous torch.float32 tensor of shape \(2, 2, 3\) on"
        ):
            tiered.gather([0, 1], out=out)
    with pytest.raises(InputError, match="out: expected a tensor, found ndarray"):
        tiered.gather([0, 1], out=np.zeros((2, 2, 3)))


def test_closed():
    with tiering.tiered(torch.zeros(5, 2), device="cpu") as tiered:
        tiered[[0]]
    tiered.close()
    assert tiered.closed
    assert repr(tiered) == "<TieredTensor (5, 2) torch.float32 on cpu (closed)>"
    for use in (lambda: tiered[[0]], tiered.placement, lambda: tiered.counters):
        with pytest.raises(InputError, match="tiered tensor: it was closed; make it again"):
            use()
    with pytest.raises(TypeError, match="not iterable"):
        iter(tiered)


def test_without_a_gpu_rows_are_in_host_memory(caplog):
    """The default device of a machine whose torch has no GPU; sizes of GPUs are not used there."""
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    tiered = tiering.tiered(torch.zeros(5, 2), gpu="50%")
    assert tiered.device == torch.device("cpu")
    assert tiered.placement()["gpu"]["rows"] == 0


@forks
def test_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    page = (EXAMPLES.parents[1] / "docs" / "tiered-tensor.md").read_text()
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S):
        exec(compile(code, "tiered-tensor.md", "exec"), names)  # noqa: S102 - our own page
    assert "256 rows in host memory; 9,744 rows in" in capsys.readouterr().out


def coded(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """The rows as a codec gives them back, as float32, or what of 16 bits the tensor has."""
    dtype = tensor.dtype if tensor.dtype in (torch.float16, torch.bfloat16) else torch.float32
    rows = tensor.reshape(len(tensor), -1).float().numpy()
    codec = fit_codec(name, [rows], rows.shape[1], "float32", "test")
    delivered = codec.decode(codec.encode(rows), str(dtype).removeprefix("torch."))
    return torch.from_numpy(delivered.view(np.uint8)).view(dtype).view(tensor.shape)


@pytest.mark.parametrize("name", ["int8", "float8_e4m3", "bfloat16", "float16", "float32"])
def test_rows_are_stored_by_a_codec(tmp_path, monkeypatch, name):
    monkeypatch.setattr(source_module, "_ENCODED_BYTES", 200)  # blocks of a few rows
    generator = torch.Generator().manual_seed(1)
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64):
        tensor = (100 * torch.randn((50, 3, 2), generator=generator)).to(dtype)
        expected = coded(tensor, name)
        for source in (tensor, map_file(tensor, tmp_path / "table", 16)):
            tiered = tiering.tiered(source, dtype=name, order=torch.rand(50), device="cpu", threads=2)
            assert (tiered.dtype, tiered.shape) == (expected.dtype, expected.shape)
            for ids in ([7, 0, 7, 49], np.arange(50), []):
                assert torch.equal(tiered[ids], expected[ids])
            out = torch.empty_like(expected[:2])
            assert tiered.gather([3, 1], out=out) is out
            assert torch.equal(out, expected[[3, 1]])
            assert (tiered.codec is None) == (name == str(dtype).removeprefix("torch."))
            if tiered.codec is not None:
                nbytes = tiered.codec.row_bytes
                assert tiered.placement()["cpu"] == {"rows": 50, "bytes": 50 * nbytes, "where": "host memory"}
                assert sum(tier.bytes for tier in tiered.counters.tiers.values()) == 56 * nbytes


def test_the_codec_is_said_and_the_tensor_not_needed():
    tensor = torch.randint(0, 100, (300, 4)).float()
    x = tiering.tiered(tensor, dtype="int8", device="cpu")
    tensor.share_memory_().zero_()
    assert repr(x) == "<TieredTensor (300, 4) torch.float32 on cpu, stored as int8 (exact): 300 rows in host memory>"
    assert float(x[:].abs().sum()) > 0
    for of, found in (("auto", "float16"), (torch.float16, "float16"), (np.float16, "float16"), (torch.int8, "int8")):
        assert tiering.tiered(torch.full((3, 2), 0.5), dtype=of, device="cpu").codec.name == found
    x = tiering.tiered(torch.full((3, 2), 0.1), dtype="auto", device="cpu")
    assert (x.codec, x.loss) == (None, None)
    x = tiering.tiered(torch.rand(50, 3), dtype="int8", device="cpu")
    assert re.search(r"as int8 \(rms 0\.00\d+, largest .*; worst column \d .*; 0 of 3 columns exact\)", repr(x))


def test_what_float16_cannot_hold_any_more_is_delivered_as_float32():
    x = tiering.tiered(torch.tensor([[60000.0, -65504.0], [1.0, 2.0]]).half(), dtype="int8", device="cpu")
    assert x.dtype == torch.float32
    assert float(x[0, 1]) < -65504


@forks
def test_forked_workers_decode():
    tensor = torch.rand(100, 8)
    x = tiering.tiered(tensor, dtype="int8", device="cpu", threads=1)
    loader = DataLoader(
        x, None, sampler=BatchSampler(SequentialSampler(range(100)), 40, False), num_workers=2,
        multiprocessing_context="fork",
    )  # fmt: skip
    assert torch.equal(torch.cat(list(loader)), coded(tensor, "int8"))


NAN, FAR = torch.zeros(2, 9, 3), torch.zeros(2, 3)
NAN[1, 7, 2], FAR[1, 2] = float("nan"), 1e5


@pytest.mark.parametrize(("tensor", "dtype", "message"), [
    (NAN, "int8", "row 1, column 23 is nan, which int8 cannot store; store the table as float32, float16 or bf"),
    (FAR, "float16", "row 1, column 2 is 100000, which float16 cannot store; store the table as float32 or bfloat16"),
    (FAR * 3.4e33, "bfloat16", "tiered tensor: column 2 has 3.4e.38, which bfloat16 rounds to infinity"),
    (FAR.long() * 1000, "int8", "row 1, column 2 is 100000000, but codecs store whole numbers up to 2.24"),
    (FAR, "int4", "dtype: expected auto, float32, float16, bfloat16, float8_e4m3, int8, found 'int4'"),
    (FAR.bool(), "int8", "dtype: int8 stores float16, .*, int64, found a tensor of bool"),
    (FAR.to(torch.complex64), "float16", "found a tensor of complex64"),
])  # fmt: skip
def test_what_a_codec_cannot_store(monkeypatch, tensor, dtype, message):
    monkeypatch.setattr(source_module, "_ENCODED_BYTES", 1)
    with pytest.raises(InputError, match=message):
        tiering.tiered(tensor, dtype=dtype, device="cpu")


def test_too_little_memory_for_encoded_rows(monkeypatch):
    monkeypatch.setattr(source_module, "available_memory", lambda: 4000)
    assert len(tiering.tiered(torch.rand(1000, 4), dtype="int8", device="cpu")) == 1000
    with pytest.raises(BudgetError, match=r"dtype: rows as int8 need 3.91 KiB, but only 3.906 KiB of memory .* on SSD"):
        tiering.tiered(torch.rand(1001, 4), dtype="int8", device="cpu")


def test_tiering_alone_does_not_load_torch():
    code = "import tiering, sys; tiering.tiered; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
