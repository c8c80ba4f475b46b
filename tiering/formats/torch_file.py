"""Files of ``torch.save``, read without torch and without running anything; tensors stay where they are in the file.

Such a file is a zip archive: a pickle, ``data.pkl``, and for each storage a member, ``data/0``, ``data/1``..., which
is not compressed and can be mapped where it lies. The pickle is read by `tiering.formats.pickled`, which takes what is
on the lists below and refuses the rest by name.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.manifest import storage_dtype
from tiering.artifacts.regular import require_file
from tiering.artifacts.storage import open_raw, storage_errors
from tiering.errors import InputError, TieringError, shown
from tiering.formats.npy_file import read_start
from tiering.formats.pickled import Allowed, unpickle
from tiering.formats.pickled_numpy import Name, named
from tiering.formats.zip_file import compare_members

MAX_PICKLE = 256 << 20
"""Bytes of ``data.pkl`` that are read: numpy arrays lie in it, tensors do not."""
_MAX_AXES = 8
_ZIP, _LOCAL_HEADER = b"PK\x03\x04", 30
_STORAGES = {
    "torch.FloatStorage": "float32",
    "torch.DoubleStorage": "float64",
    "torch.HalfStorage": "float16",
    "torch.BFloat16Storage": "bfloat16",
    "torch.LongStorage": "int64",
    "torch.IntStorage": "int32",
    "torch.ShortStorage": "int16",
    "torch.CharStorage": "int8",
    "torch.ByteStorage": "uint8",
    "torch.BoolStorage": "bool",
    "torch.storage.UntypedStorage": "uint8",
}
_DTYPES = {*_STORAGES.values(), "uint16", "uint32", "uint64"}


@dataclass(frozen=True)
class TorchTensor:
    """A tensor in a file of torch's, which is not read before it is asked for."""

    path: Path
    dtype: str
    """Torch's name; ``bfloat16`` is stored as ``uint16``."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Elements from one to the next along each axis."""
    offset: int
    """Bytes of the file before the first element."""

    @property
    def described(self) -> str:
        """``float32 (5, 3)``, for messages."""
        return f"{self.dtype} {self.shape}"

    @property
    def contiguous(self) -> bool:
        """Whether the elements lie one behind the other, rows first."""
        expected = 1
        for size, stride in zip(self.shape[::-1], self.strides[::-1], strict=True):
            if size != 1 and stride != expected:
                return 0 in self.shape
            expected *= size
        return True

    def array(self) -> npt.NDArray[Any]:
        """The tensor, mapped read-only; ``bfloat16`` comes as ``uint16``."""
        dtype = storage_dtype(self.dtype)
        if self.contiguous:
            return open_raw(self.path, dtype, self.shape, self.offset)
        span = 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        steps = tuple(stride * dtype.itemsize for stride in self.strides)
        flat = open_raw(self.path, dtype, (span,), self.offset)
        return np.lib.stride_tricks.as_strided(flat, self.shape, steps, writeable=False)


@dataclass(frozen=True)
class StoredObject:
    """An object of another library, as its state: nothing of its class is run."""

    name: str
    """Of the class, such as ``torch_geometric.data.data.Data``."""
    state: dict[str, Any]


@dataclass(frozen=True)
class _Storage:
    """Where the elements of tensors lie."""

    offset: int
    bytes: int
    dtype: str


def read_torch(path: Path, what: str = "a file of torch.save", limit: int = MAX_PICKLE) -> Any:
    """What a file of ``torch.save`` holds.

    Dictionaries, lists, tuples, sets, numbers and text are Python's, arrays and scalars numpy's, tensors
    `TorchTensor`; dtypes of torch and classes that stand for themselves are `Name`. Of PyG's objects, storages are
    dictionaries, `Data` and `HeteroData` are `StoredObject`.

    Parameters
    ----------
    path
        The file.
    what
        What it should hold, for messages.
    limit
        Bytes of ``data.pkl`` that may be read into memory.

    Raises
    ------
    MissingError
        If there is nothing at `path`.
    InputError
        If it is no regular file, of the format before torch 1.6, no such archive, or damaged; if it holds anything
        else than data.
    """
    require_file(path, what)
    start = read_start(path, 4)
    if start[:1] == b"\x80":
        raise InputError(
            f"{path}: expected {what} as torch has written it since 1.6 (a zip archive), found a plain pickle, such as "
            f"torch.save wrote before; if you trust it, torch.save(torch.load('{path.name}'), '{path.name}')"
        )
    if start != _ZIP:
        raise InputError(f"{path}: expected {what}, found no zip archive; was it saved with torch.save?")
    compare_members(path, what)
    try:
        with storage_errors(path), zipfile.ZipFile(path) as archive:
            members = _Members(path, archive)
            pickle = members.read("data.pkl", limit)
            if "byteorder" in members.infos and members.read("byteorder", 16) != b"little":
                raise InputError(f"{path}: expected little-endian tensors, found others; save it again on this machine")
            return unpickle(pickle, str(path), _allowed(members))
    except TieringError:
        raise
    except Exception as error:  # zipfile raises almost anything on damaged archives
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{path}: expected {what}, found a damaged archive ({reason}); get the file again") from error


class _Members:
    """The members of an archive by their names below its one folder."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self.archive, self.size = path, archive, path.stat().st_size
        names = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
        if len(names) != 1 or names[0].replace("data.pkl", "constants.pkl") in archive.namelist():
            found = ", ".join(sorted(archive.namelist())[:4])
            raise InputError(
                f"{path}: expected a file of torch.save, found {'a TorchScript program' if names else 'an archive'} of "
                f"{found or 'nothing'}; save tensors with torch.save"
            )
        folder = names[0][: -len("data.pkl")]
        self.places: dict[str, tuple[int, int]] = {}
        self.infos = {i.filename[len(folder) :]: i for i in archive.infolist() if i.filename.startswith(folder)}

    def read(self, name: str, limit: int) -> bytes:
        """A small member, whole."""
        info = self.infos[name]
        if info.file_size > limit:
            raise InputError(
                f"{self.path}: {name} has {info.file_size} bytes, more than the {limit} that are read into memory; "
                "save arrays as tensors (torch.from_numpy), which stay in the file"
            )
        with self.archive.open(info) as member:
            data = member.read(info.file_size + 1)
        if len(data) != info.file_size:
            raise InputError(f"{self.path}: {name}: damaged: {info.file_size} bytes announced, found {len(data)}")
        return data

    def place(self, name: str) -> tuple[int, int]:
        """Where the content of a member begins in the file, and its bytes."""
        if name not in self.places:
            self.places[name] = self._find(name)
        return self.places[name]

    def _find(self, name: str) -> tuple[int, int]:
        if name not in self.infos:
            raise InputError(f"the archive lacks {shown(name)}; get the file again")
        info = self.infos[name]
        if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
            raise InputError(f"expected {name} stored as it is, found it compressed; save it again with torch.save")
        with storage_errors(self.path), self.path.open("rb") as file:
            file.seek(info.header_offset)
            header = file.read(_LOCAL_HEADER)
        if len(header) < _LOCAL_HEADER or header[:4] != _ZIP:
            raise InputError(f"{name}: damaged archive; get the file again")
        lengths = int.from_bytes(header[26:28], "little") + int.from_bytes(header[28:30], "little")
        offset = info.header_offset + _LOCAL_HEADER + lengths
        if offset + info.file_size > self.size:
            raise InputError(f"{name}: cut: {info.file_size} bytes announced; get the file again")
        return offset, info.file_size


def _allowed(members: _Members) -> Allowed:
    """What a file of torch's may name."""

    def storage(identity: Any) -> _Storage:
        word, kind, key, _, elements = identity
        whole = type(elements) is int and isinstance(key, str)
        if word != "storage" or not isinstance(kind, Name) or kind.name not in _STORAGES or not whole:
            raise ValueError(f"a storage {named(word)} {named(key)}")
        dtype = _STORAGES[kind.name]
        offset, size = members.place(f"data/{key}")
        if not 0 <= elements * storage_dtype(dtype).itemsize <= size:
            raise InputError(f"data/{key}: {shown(elements)} x {dtype} announced, found {size} bytes")
        return _Storage(offset, size, dtype)

    def tensor(
        storage: _Storage, first: int, shape: Any, strides: Any, grad: Any, hooks: Any, metadata: Any = None
    ) -> TorchTensor:
        if metadata:
            raise InputError("expected plain tensors, found one with a lazy operation; save tensor.clone()")
        return _tensor(members.path, storage, storage.dtype, first, shape, strides)

    def untyped_tensor(
        storage: _Storage,
        first: int,
        shape: Any,
        strides: Any,
        grad: Any,
        hooks: Any,
        dtype: Name,
        metadata: Any = None,
    ) -> TorchTensor:
        name = dtype.name.removeprefix("torch.")
        if metadata or name not in _DTYPES:
            raise InputError(f"expected plain tensors, found one of {shown(dtype.name)}; convert it")
        return _tensor(members.path, storage, name, first, shape, strides)

    calls: dict[str, Callable[..., Any]] = {
        "torch._utils._rebuild_tensor_v2": tensor,
        "torch._utils._rebuild_tensor_v3": untyped_tensor,
        "torch._utils._rebuild_parameter": lambda data, *_: data,
        "torch.Size": _size,
        "torch.device": lambda *names: ":".join(map(named, names)).replace("'", ""),
    }
    names = frozenset({*_STORAGES, *(f"torch.{name}" for name in _DTYPES), *_CLASSES})
    return Allowed(calls, {**_objects(), **_STORES}, _PARTS, names, storage)


def _size(sizes: Any) -> tuple[Any, ...]:
    if not isinstance(sizes, tuple):
        raise ValueError(f"a size of {named(sizes)}")
    return sizes


def _tensor(path: Path, storage: _Storage, dtype: str, first: Any, shape: Any, strides: Any) -> TorchTensor:
    if len(shape) > _MAX_AXES or len(shape) != len(strides):
        raise ValueError(f"a tensor of {len(shape)} axes with {len(strides)} steps")
    if not all(type(n) is int and 0 <= n < 2**62 for n in (first, *shape, *strides)):
        raise ValueError("a tensor of sizes or steps that are none")
    item = storage_dtype(dtype).itemsize
    end = 0 if 0 in shape else 1 + first + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    if end * item > storage.bytes:
        raise InputError(f"a tensor {dtype} {tuple(shape)} that ends behind its {storage.bytes} bytes; damaged?")
    if math.prod(shape) * item > storage.bytes:
        raise InputError(
            f"expected tensors that are stored whole, found {dtype} {tuple(shape)} in {storage.bytes} bytes, one that "
            "was expanded; save tensor.clone()"
        )
    if storage.offset % item:
        raise InputError(
            f"expected tensors at multiples of {item} bytes, as torch.save writes them, found one at "
            f"{storage.offset}; save it again with torch.save"
        )
    return TorchTensor(path, dtype, tuple(shape), tuple(strides), storage.offset + first * item)


_PYG = "torch_geometric.data."
_GRAPHBOLT = "dgl.graphbolt.impl.fused_csc_sampling_graph.FusedCSCSamplingGraph"
_OBJECTS = (
    f"{_PYG}data.Data",
    f"{_PYG}hetero_data.HeteroData",
    "torch._C.ScriptObject",
    "torch.ScriptObject",
    _GRAPHBOLT,
)
_STORES = {
    f"{_PYG}storage.{name}": lambda state: state["_mapping"]
    for name in ("BaseStorage", "GlobalStorage", "NodeStorage", "EdgeStorage")
}
_PARTS = dict.fromkeys(_STORES, ("_mapping",))
"""A storage also refers to the object that it is part of."""
_CLASSES = (
    *(f"{_PYG}data.{name}" for name in ("DataEdgeAttr", "DataTensorAttr")),
    f"{_PYG}graph_store.EdgeAttr",
    f"{_PYG}feature_store.TensorAttr",
)
"""Classes that PyG's objects name."""


def _objects() -> dict[str, Any]:
    def maker(name: str) -> Any:
        def make(state: Mapping[str, Any]) -> StoredObject:
            return StoredObject(name, dict(state))

        return make

    return {name: maker(name) for name in _OBJECTS}
