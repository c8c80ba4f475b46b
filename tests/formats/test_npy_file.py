"""Numpy headers: what is refused, and in which words."""

import os
import pickle
import tracemalloc

import numpy as np
import pytest

from tiering.errors import InputError
from tiering.formats.npy_file import open_npy


def saved(path, array, **options):
    np.save(path, array, **options)
    return path


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32", "int64", "uint16", "bool"])
@pytest.mark.parametrize("shape", [(0,), (7,), (3, 4), (0, 4), (2, 0)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_round_trip(tmp_path, dtype, shape, order):
    array = np.arange(np.prod(shape)).reshape(shape).astype(dtype, order)
    header = open_npy(saved(tmp_path / "a.npy", array))
    assert (header.shape, header.dtype) == (shape, array.dtype)
    assert np.array_equal(header.array(), array)


def test_a_header_of_python_2(tmp_path, recwarn):
    path = saved(tmp_path / "a.npy", np.arange(3))
    path.write_bytes(path.read_bytes().replace(b"(3,), }  ", b"(3L,), } "))
    assert open_npy(path).shape == (3,)
    assert not recwarn.list


def test_headerless_says_what_the_size_suggests(tmp_path):
    np.arange(10, dtype=np.float32).tofile(tmp_path / "a.npy")
    with pytest.raises(InputError, match=r"40 bytes without one .*10 x float32 or 5 x int64"):
        open_npy(tmp_path / "a.npy")


def test_a_header_is_not_read_beyond_its_bound(tmp_path):
    """A length of 4 GiB, in a file with holes that is as long, is refused before so much is read."""
    path = tmp_path / "a.npy"
    path.write_bytes(b"\x93NUMPY\x02\x00" + (2**32 - 1).to_bytes(4, "little"))
    os.truncate(path, 2**32 + 100)
    tracemalloc.start()
    with pytest.raises(InputError, match=r"damaged numpy header .*expected at most 65536 bytes, found 4294967295"):
        open_npy(path)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_truncated_and_oversized(tmp_path):
    path = saved(tmp_path / "a.npy", np.arange(10))
    data = path.read_bytes()
    path.write_bytes(data[:-3])
    with pytest.raises(InputError, match=r"truncated: .*int64 \(10,\), 208 bytes in total, found 205"):
        open_npy(path)
    path.write_bytes(data + b"x")
    with pytest.raises(InputError, match=r"oversized: .*208 bytes in total, found 209"):
        open_npy(path)


class Trap:
    """Runs code when unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("the file was unpickled",))


def test_pickles_are_never_loaded(tmp_path):
    path = saved(tmp_path / "a.npy", np.array([Trap()], object), allow_pickle=True)
    with pytest.raises(InputError, match="pickled Python objects, which are never loaded"):
        open_npy(path)
    path.write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="looks like a Python pickle"):
        open_npy(path)


@pytest.mark.parametrize(("array", "message"), [
    (np.arange(3).astype(">i8"), r"big-endian >i8.*astype\('<i8'\)"),
    (np.array(["a", "b"]), "expected a plain numeric array, found dtype <U1"),
    (np.zeros(2, [("a", "i4")]), "expected a plain numeric array"),
    (np.zeros(2, complex), "expected a plain numeric array, found dtype complex128"),
    (np.zeros(2, "datetime64[s]"), "expected a plain numeric array"),
])  # fmt: skip
def test_refused_dtypes(tmp_path, array, message):
    with pytest.raises(InputError, match=message):
        open_npy(saved(tmp_path / "a.npy", array))
