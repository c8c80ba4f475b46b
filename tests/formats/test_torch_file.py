"""Files of torch.save: what torch loads, and no more; pickles that mean harm, archives that are damaged."""

import os
import sys
import zipfile

import numpy as np
import pytest

from tiering.artifacts.reader import map_again
from tiering.errors import BudgetError, CapabilityError, InputError, MissingError, TieringError
from tiering.formats.torch_file import StoredObject, read_torch

torch = pytest.importorskip("torch")

SPLITS = {"train": np.arange(7), "valid": np.array([3, 1], np.int32), "test": np.array([], np.int64)}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "some.pt"


def plain(value):
    """A value as lists, with the types and shapes of its parts."""
    if isinstance(value, dict):
        return {key: plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), list(map(plain, value))
    if isinstance(value, torch.Tensor):
        return value.dtype, value.shape, value.stride(), value.tolist()
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype, value.shape, value.tolist()
    return type(value), value


def same(read, value):
    """What was read is what torch loads."""
    assert plain(read) == plain(value)


def arrays():
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


def tensors():
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
        "expanded": torch.ones(1).expand(5),
    }


def refused(path, message, **options):
    with pytest.raises(InputError, match=message):
        read_torch(path, **options)


@pytest.mark.parametrize("make", [arrays, tensors])
def test_values_are_those_that_were_saved(path, make):
    torch.save(make(), path)
    same(read_torch(path), make())


@pytest.mark.parametrize("view", ["whole", "cut", "transposed", "every other", "row", "expanded", "no rows"])
def test_an_array_is_mapped_again_as_it_lies(path, view):
    saved = torch.arange(24).view(4, 6)
    made = {
        "whole": saved, "cut": saved[1:3, 2:5], "transposed": saved.T, "every other": saved[::2], "row": saved[2],
        "expanded": saved[:1].expand(3, 6), "no rows": saved[:0],
    }  # fmt: skip
    torch.save(made[view], path)
    array, offset = map_again(read_torch(path).numpy(), path)
    np.testing.assert_array_equal(array, made[view])
    assert (offset is None) == (view == "no rows")
    if view == "whole":
        np.testing.assert_array_equal(np.fromfile(path, np.int64, 24, offset=offset or 0), array.ravel())
    elsewhere, offset = map_again(read_torch(path).numpy(), path.with_name("other"))
    np.testing.assert_array_equal(elsewhere, array)
    assert offset is None


def test_pyg_objects_are_their_storages(path):
    data = pytest.importorskip("torch_geometric.data")
    torch.save(data.Data(x=torch.rand(4, 3), edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=4), path)
    read = read_torch(path)
    assert isinstance(read, StoredObject)
    same(read.state["_store"], dict(torch.load(path, weights_only=False).to_dict()))
    collated = data.InMemoryDataset.collate([data.Data(x=torch.ones(2, 1), edge_index=torch.tensor([[0], [1]]))])
    torch.save((collated[0].to_dict(), collated[1], data.Data), path)
    same(read_torch(path)[0]["x"], torch.ones(2, 1))

    hetero = data.HeteroData()
    hetero["paper"].x = torch.rand(3, 2)
    hetero["author", "writes", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    torch.save(hetero, path)
    read = read_torch(path)
    assert read.name.endswith("HeteroData")
    same(read.state["_node_store_dict"]["paper"]["x"], hetero["paper"].x)
    same(read.state["_edge_store_dict"]["author", "writes", "paper"]["edge_index"], hetero.edge_stores[0].edge_index)


def test_what_others_allowed_is_neither_used_nor_lost(path):
    class Allowed:
        pass

    torch.serialization.add_safe_globals([Allowed])
    torch.save({"x": torch.ones(1)}, path)
    read_torch(path)
    assert Allowed in torch.serialization.get_safe_globals()
    torch.save({"x": Harm(path)}, path)
    with (
        torch.serialization.safe_globals([os.mkdir]),
        pytest.raises(InputError, match=r"found the Python object 'posix\.mkdir'"),
    ):
        read_torch(path)


def test_without_torch_one_line_says_what_to_do(path, monkeypatch):
    torch.save({"x": torch.ones(1)}, path)
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CapabilityError, match=r"some\.pt: .* need torch, .*pip install 'tiering\[torch\]'$"):
        read_torch(path)


def test_memory_that_the_modules_of_torch_do_not_fit_is_asked_for(path, monkeypatch):
    torch.save({"x": torch.ones(1)}, path)
    monkeypatch.setattr("tiering.memory.available_memory", lambda: 0)
    monkeypatch.setattr("tiering.memory.own_memory", lambda: 200 << 20)
    with pytest.raises(BudgetError, match=r"memory: reading .* expected at least 224 MiB for .* found 200 MiB"):
        read_torch(path)


class Harm:
    """Makes a file when it is unpickled."""

    def __init__(self, file):
        self.file = file

    def __reduce__(self):
        return os.mkdir, (str(self.file),)


def test_code_in_a_pickle_is_refused_by_name_and_not_run(path, tmp_path):
    torch.save({"a": [Harm(tmp_path / "made")]}, path)
    refused(path, r"some\.pt: expected plain data, found the Python object 'posix.mkdir'")
    assert not (tmp_path / "made").exists()
    torch.load(path, weights_only=False)
    assert (tmp_path / "made").exists()


@pytest.mark.parametrize(("value", "message"), [
    (np.array([1], "M8[s]"), "DateTime64DType"), (np.zeros(1, "i4,f4"), "VoidDType"),
    (torch.nn.Linear(1, 1), "torch.nn.modules.linear.Linear"),
])  # fmt: skip
def test_what_is_no_plain_data_is_refused(path, value, message):
    torch.save(value, path)
    with pytest.raises(InputError) as error:
        read_torch(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_none_are_refused(path, tmp_path):
    with pytest.raises(MissingError, match="expected the splits"):
        read_torch(path, "the splits")
    torch.save(SPLITS, path, _use_new_zipfile_serialization=False)
    refused(path, r"since 1\.6 .*torch\.save\(torch\.load\('some\.pt'\)")
    np.savez(tmp_path / "a.npz", a=np.arange(3))
    refused(tmp_path / "a.npz", r"found an archive of a\.npy")
    path.write_bytes(b"")
    refused(path, "found no zip archive")
    torch.save(SPLITS, path)
    refused(path, "more than the limit of 100", limit=100)


def packed_again(path, out, change, **how):
    """The archive with some members changed."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", **how) as new:
        for name in old.namelist():
            new.writestr(name, change.get(name.partition("/")[2], old.read(name)))


def test_archives_that_lie_are_refused(path, tmp_path):
    out = tmp_path / "other.pt"
    torch.save({"x": torch.arange(100)}, path)
    packed_again(path, out, {}, compression=zipfile.ZIP_DEFLATED)
    refused(out, r"data.pkl uncompressed, found it compressed")
    packed_again(path, out, {"data.pkl": b"\x80\x02}q"})
    refused(out, r"other\.pt: expected a file of torch\.save .* found: \w")
    packed_again(path, out, {"byteorder": b"big"})
    refused(out, "little-endian tensors")
    path.write_bytes(path.read_bytes()[:-100])
    refused(path, "damaged archive")


def test_a_file_with_any_flipped_byte_is_read_or_refused(path, tmp_path):
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
            value["x"].sum()
            read += 1
    assert 0 < read < len(good)  # padding has no checksum
