"""Files of torch.save read without torch, against torch.load; pickles that mean harm."""

from __future__ import annotations

import collections
import os
import pickle
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.errors import InputError, MissingError, TieringError
from tiering.formats.pickled import MAX_DEPTH, Allowed, unpickle
from tiering.formats.pickled_numpy import Name
from tiering.formats.torch_file import StoredObject, TorchTensor, read_torch
from tiering.formats.zip_file import compare_members

torch = pytest.importorskip("torch")

SPLITS = {"train": np.arange(7), "valid": np.array([3, 1], np.int32), "test": np.array([], np.int64)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "some.pt"


def same(read: Any, value: Any) -> None:
    """What was read is what torch loads."""
    if isinstance(value, torch.Tensor):
        assert isinstance(read, TorchTensor)
        assert (read.dtype, read.shape) == (str(value.dtype).removeprefix("torch."), tuple(value.shape))
        assert read.contiguous == value.is_contiguous()
        bits = value.detach().view(torch.int16).numpy().view(np.uint16) if read.dtype == "bfloat16" else value.detach()
        array = read.array()
        np.testing.assert_array_equal(array, np.asarray(bits))
        assert not array.flags.writeable or array.size == 0
    elif isinstance(value, (np.ndarray, np.generic)):
        assert (read.dtype, read.shape) == (value.dtype, value.shape)
        np.testing.assert_array_equal(read, value)
    elif isinstance(value, dict):
        assert list(read) == list(value)
        for key in value:
            same(read[key], value[key])
    elif isinstance(value, (list, tuple)):
        assert type(read) is (tuple if isinstance(value, tuple) else list)
        assert len(read) == len(value)
        for one, other in zip(read, value, strict=True):
            same(one, other)
    else:
        assert (type(read), read) == (type(value), value)


def containers() -> dict[str, Any]:
    shared = [1, 2]
    return {
        "numbers": [0, 1, -1, 255, 256, 65536, -(2**31), 2**31, 2**63 - 1, -(2**63), 2.5, float("inf"), True, None],
        "text": ("", "paper", "Ø\udc80", b"bytes", "x" * 300),
        ("paper", "cites", "paper"): collections.OrderedDict(a=1, b=()),
        5: {"set": {1, 2}, "frozen": frozenset({"a"})},
        "twice": [shared, shared],
        "size": torch.Size([3, 4]),
    }


def arrays() -> dict[str, Any]:
    return {
        **SPLITS,
        "rows": np.arange(6, dtype=np.float32).reshape(2, 3),
        "columns": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "half": np.array([1.5], np.float16),
        "truth": np.array([[True], [False]]),
        "text": np.array(["a", "bcd"]),
        "bytes": np.array([b"a", b"bcd"]),
        "scalar": np.float32(2.5),
        "true": np.bool_(True),
        "no axis": np.array(3),
    }


def tensors() -> dict[str, Any]:
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    names = ("float64", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "uint16", "uint32")
    return {
        **{name: torch.arange(5).to(getattr(torch, name)) for name in names},
        "base": base,
        "transposed": base.T,
        "cut": base[1:3, 2:5],
        "every other": base[::2],
        "row": base[2],
        "one": base[1, 1],
        "nothing": torch.empty(0, 7),
        "parameter": torch.nn.Parameter(torch.ones(2, 2)),
    }


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("make", [containers, arrays, tensors])
def test_values_are_those_that_torch_loads(path: Path, make: Any, protocol: int) -> None:
    torch.save(make(), path, pickle_protocol=protocol)
    expected = torch.load(path, weights_only=False)
    if make is containers:
        expected["size"] = tuple(expected["size"])
        expected["numbers"] = list(expected["numbers"])
    read = read_torch(path)
    if make is containers:
        assert dict(read.pop(("paper", "cites", "paper"))) == dict(expected.pop(("paper", "cites", "paper")))
    same(read, expected)


def test_a_tensor_lies_in_the_file_where_it_says(path: Path) -> None:
    torch.save({"x": torch.arange(1000, dtype=torch.int64)}, path)
    tensor = read_torch(path)["x"]
    assert isinstance(tensor.array(), np.memmap)
    np.testing.assert_array_equal(np.fromfile(path, np.int64, 1000, offset=tensor.offset), np.arange(1000))


def traced_peak(work: Any) -> int:
    """Bytes that Python and numpy allocate at most."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_tensors_are_not_read(path: Path) -> None:
    torch.save({"x": torch.ones(1 << 20)}, path)
    peak = traced_peak(lambda: read_torch(path))
    assert path.stat().st_size > 1 << 22
    assert peak < 1 << 20


def test_dtypes_and_devices_are_values(path: Path) -> None:
    torch.save((torch.float16, torch.device("cuda", 1), np.dtype("f4")), path)
    assert read_torch(path) == (Name("torch.float16"), "cuda:1", np.dtype("f4"))


def test_pyg_objects_are_their_storages(path: Path) -> None:
    data = pytest.importorskip("torch_geometric.data")
    torch.save(data.Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=4), path)
    read = read_torch(path)
    assert isinstance(read, StoredObject)
    same(read.state["_store"], dict(torch.load(path, weights_only=False).to_dict()))

    hetero = data.HeteroData()
    hetero["paper"].x = torch.rand(3, 2)
    hetero["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    torch.save(hetero, path)
    read = read_torch(path)
    assert read.name.endswith("HeteroData")
    same(read.state["_node_store_dict"]["paper"]["x"], hetero["paper"].x)
    same(read.state["_edge_store_dict"]["author", "writes", "paper"]["edge_index"], hetero.edge_stores[0].edge_index)


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


def test_code_in_a_pickle_is_refused_by_name_and_not_run(path: Path, tmp_path: Path) -> None:
    torch.save({"a": [Harm(tmp_path / "made")]}, path)
    with pytest.raises(InputError, match=r"some\.pt: expected data alone, found 'posix.mkdir'"):
        read_torch(path)
    assert not (tmp_path / "made").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (torch.ones(2, 2).to_sparse(), "_rebuild_sparse_tensor"),
        (torch.ones(1).expand(5), "tensor.clone"),
        (torch.ones(1, dtype=torch.complex64), "ComplexFloatStorage"),
        (np.array([1, None]), "dtype 'O8'"),
        (np.array([1], ">i4"), "little-endian"),
        (np.array([1], "M8[s]"), "dtype 'M8'"),
        (2**100, "a whole number of"),
        (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
    ],
)
def test_what_is_no_plain_data_is_refused(path: Path, value: Any, message: str) -> None:
    torch.save(value, path)
    with pytest.raises(InputError) as error:
        read_torch(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


def test_files_that_are_none_are_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(MissingError, match="expected the splits"):
        read_torch(path, "the splits")
    torch.save(SPLITS, path, _use_new_zipfile_serialization=False)
    with pytest.raises(InputError, match=r"since 1\.6 .*torch\.save\(torch\.load\('some\.pt'\)"):
        read_torch(path)
    np.savez(tmp_path / "a.npz", a=np.arange(3))
    with pytest.raises(InputError, match=r"found an archive of a\.npy"):
        read_torch(tmp_path / "a.npz")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="found no zip archive"):
        read_torch(path)
    torch.save(SPLITS, path)
    with pytest.raises(InputError, match="more than the 100 that are read"):
        read_torch(path, limit=100)


def packed_again(path: Path, out: Path, change: dict[str, bytes], **how: Any) -> None:
    """The archive with some members changed."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", **how) as new:
        for name in old.namelist():
            new.writestr(name, change.get(name.partition("/")[2], old.read(name)))


def test_archives_that_lie_are_refused(path: Path, tmp_path: Path) -> None:
    out = tmp_path / "other.pt"
    torch.save({"x": torch.arange(100)}, path)
    packed_again(path, out, {}, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(InputError, match=r"data/0 stored as it is, found it compressed"):
        read_torch(out)
    packed_again(path, out, {"data/0": b"short"})
    with pytest.raises(InputError, match="100 x int64 announced, found 5 bytes"):
        read_torch(out)
    packed_again(path, out, {"byteorder": b"big"})
    with pytest.raises(InputError, match="little-endian tensors"):
        read_torch(out)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InputError, match="damaged archive"):
        read_torch(path)


def bombs() -> dict[str, bytes]:
    """Pickles that ask for far more than their size, and what is said of each."""
    head = b"\x80\x02"
    laughs = b"]q\x000" + b"".join(b"](" + b"h%c" % n * 10 + b"eq%c0" % (n + 1) for n in range(20))
    inside = b"]q\x00h\x00a."
    text = b"X" + (1000).to_bytes(4, "little") + b"a" * 1000 + b"q\x00"
    encode = b"c_codecs\nencode\nq\x01"
    again = b"h\x01h\x00X\x06\x00\x00\x00latin1\x86R"
    chained = b"".join(b"h%c" % n + b"\x85" * 50 + b"q%c" % (n + 1) for n in range(100))
    return {
        "inside one another": head + b"](" + b"]q\x00" + chained + b"e.",
        "containers inside one another": head + b"]" * 100_000 + b"a" * 99_999 + b".",
        "in itself": head + inside,
        "more than": head + laughs + b"h%c\x85" % 20 + b".",
        "copies more": head + b"]q\x02" + encode + text + (again + b"0") * 100_000 + b".",
        "bytes announced": head + b"\x8e" + (2**62).to_bytes(8, "little") + b".",
        "as a key": head + b"}" + b")" + b"\x85" * 100_000 + b"Ns.",
    }


@pytest.mark.parametrize("name", bombs())
def test_bombs_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=name):
        unpickle(bombs()[name], "bomb.pt", Allowed())


def test_many_values_are_refused() -> None:
    with pytest.raises(InputError, match="values"):
        unpickle(b"\x80\x02" + b"]0" * (1 << 21) + b"N.", "bomb.pt", Allowed())


def test_nesting_up_to_the_limit_is_read() -> None:
    value: Any = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert unpickle(pickle.dumps(value, 2), "deep.pt", Allowed()) == value


FUZZED = {"a": np.arange(4), "b": [1, "x", (2.5, None)], "c": {("p", "q"): {1, 2}}, "d": np.float32(1)}


@settings(max_examples=400)
@given(
    protocol=st.sampled_from([2, 4, 5]),
    flips=st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), min_size=1, max_size=4),
    cut=st.integers(0, 10**6),
)
def test_a_damaged_pickle_is_read_or_refused(protocol: int, flips: list[tuple[int, int]], cut: int) -> None:
    data = bytearray(pickle.dumps(FUZZED, protocol))
    for place, value in flips:
        data[place % len(data)] = value
    if cut % 3 == 0:
        del data[cut % len(data) :]
    try:
        repr(unpickle(bytes(data), "fuzz.pt", Allowed()))
    except InputError as error:
        assert str(error).startswith("fuzz.pt: ")


@settings(max_examples=200)
@given(data=st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        repr(unpickle(b"\x80\x02" + data + b".", "fuzz.pt", Allowed()))
    except InputError as error:
        assert str(error).startswith("fuzz.pt: ")


def test_a_file_with_any_flipped_byte_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    torch.save({"x": torch.arange(4), "y": np.arange(3)}, path)
    good, out, read = path.read_bytes(), tmp_path / "flipped.pt", 0
    random = np.random.default_rng(1)
    for place in range(len(good)):
        changed = bytearray(good)
        changed[place] ^= int(random.integers(1, 256))
        out.write_bytes(changed)
        try:
            value = read_torch(out)
        except TieringError as error:
            assert str(out) in str(error)
        else:
            value["x"].array().sum()
            read += 1
    assert 0 < read < len(good)  # padding and the values of tensors have no checksum that is looked at


def test_a_flipped_bit_in_a_tensor_is_refused(path: Path) -> None:
    """The archive's checksum tells, before the tensor is mapped."""
    torch.save({"x": torch.arange(50_000), "y": torch.arange(9)}, path)
    data = bytearray(path.read_bytes())
    place = data.index(torch.arange(100).numpy().tobytes()) + 8 * 777
    data[place] ^= 16
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"some.pt: expected a graph, found a damaged archive: \S*/data/0 \(Bad"):
        read_torch(path, "a graph")
    with pytest.raises(InputError, match="Bad CRC-32"):
        compare_members(path, "a graph")


@pytest.mark.parametrize("packed", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_any_flipped_bit_of_a_member_is_refused(path: Path, packed: int) -> None:
    with zipfile.ZipFile(path, "w", packed) as archive:
        for name in ("a", "b"):
            archive.writestr(name, np.random.default_rng(0).bytes(3000))
        ends = [info.header_offset + 31 + info.compress_size for info in archive.infolist()]
    sound = path.read_bytes()
    compare_members(path, "an archive")
    for bit in range(8 * (ends[0] - 3000 + 10), 8 * (ends[0] - 10), 501):
        data = bytearray(sound)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"damaged archive: a \("):
            compare_members(path, "an archive")


def test_members_without_checksums_are_not_compared(path: Path) -> None:
    """``torch.serialization.set_crc32_options(False)`` leaves 0 in their place."""
    if not hasattr(torch.serialization, "set_crc32_options"):
        pytest.skip("this torch writes checksums in any case")
    torch.serialization.set_crc32_options(False)
    try:
        torch.save({"x": torch.arange(50_000)}, path)
    finally:
        torch.serialization.set_crc32_options(True)
    compare_members(path, "a graph")


def test_members_are_compared_without_being_held(path: Path) -> None:
    torch.save({"x": torch.zeros(8 << 20)}, path)
    tracemalloc.start()
    compare_members(path, "a graph")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 << 20
