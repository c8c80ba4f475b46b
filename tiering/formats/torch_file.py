"""Files of ``torch.save``, read by ``torch.load`` without running what they name; tensors stay mapped."""

from __future__ import annotations

import re
import threading
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tiering.artifacts.reader import map_again
from tiering.artifacts.storage import require_file, storage_errors
from tiering.errors import CapabilityError, InputError, TieringError, quoted
from tiering.formats.npy_file import read_start
from tiering.memory import require_floor

MAX_PICKLE = 256 << 20  # bytes of ``data.pkl`` that are read: numpy arrays lie in it, tensors do not
_PIECE = 256 * 1024
_load_lock = threading.Lock()


class StoredObject:
    """An object of another library, as its state: nothing of its class is run."""

    # attributes by name; a state that is no dictionary has the name ""
    state: dict[str, Any] = {}  # noqa: RUF012

    @property
    def name(self) -> str:
        """Name of the class, such as ``torch_geometric.data.data.Data``."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    def __setstate__(self, state: Any) -> None:
        self.state = state if isinstance(state, dict) else {"": state}


class _StoredMapping(dict[Any, Any]):
    """A storage of PyG, as its values: it also refers to the object that it is part of."""

    def __setstate__(self, state: Any) -> None:
        self.update(state["_mapping"])


def read_torch(path: Path, what: str = "a file of torch.save", limit: int = MAX_PICKLE) -> Any:
    """Return the contents of a file of ``torch.save``; no function that the file names is run.

    Tensors are torch's, mapped from the file; arrays and scalars numpy's; storages of PyG are dictionaries, its `Data`
    and `HeteroData` are `StoredObject`.
    """
    require_file(path, what)
    start = read_start(path, 4)
    if start[:1] == b"\x80":
        raise InputError(
            f"{path}: expected {what} in torch's format since 1.6 (a zip archive), found a plain pickle, which "
            f"torch.save wrote before; if you trust it, run torch.save(torch.load('{path.name}'), '{path.name}')"
        )
    if start != b"PK\x03\x04":
        raise InputError(f"{path}: expected {what}, found no zip archive; save the data with torch.save")
    _check_archive(path, what, limit)
    require_floor("reading .pt files")
    try:
        import torch
    except ImportError as error:
        raise CapabilityError(
            f"{path}: files of torch.save need torch, which cannot be imported ({error}): pip install 'tiering[torch]'"
        ) from None
    with storage_errors(path), _load_lock, warnings.catch_warnings(), _allowed_names(torch.serialization):
        warnings.simplefilter("ignore")  # of pickle protocols, and that sparse tensors are new
        try:
            return torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        except OSError:
            raise
        except Exception as error:  # a damaged pickle asks for anything
            raise _refused(path, what, error) from error


def to_array(value: Any, path: Path, where: str) -> npt.NDArray[Any]:
    """Return a dense tensor, an array or a list of numbers of a file as a numpy array; `InputError` names `where`."""
    try:
        return map_again(np.asarray(value), path)[0]
    except Exception as error:  # tensors raise what they like
        raise InputError(f"{where}: expected numbers as a dense tensor, found {type(value).__name__}") from error


def _refused(path: Path, what: str, error: Exception) -> InputError:
    reason = " ".join(str(error).split())
    if name := re.search(r"GLOBAL (\S+)", reason):
        return InputError(
            f"{path}: expected plain data, found the Python object {quoted(name[1])}, which is not on the list of "
            "safe objects; save tensors, numpy arrays, numbers and text in dictionaries, lists and tuples"
        )
    reason = reason.rpartition("WeightsUnpickler error: ")[2].partition(" Check the documentation")[0]
    reason = reason[:200] or type(error).__name__
    return InputError(f"{path}: expected {what} that torch.load reads with weights_only=True, found: {reason}")


def _check_archive(path: Path, what: str, limit: int) -> None:
    """Raise `InputError` unless the archive is one of ``torch.save`` that can be mapped, and is what was saved."""
    member = None
    try:
        with storage_errors(path), zipfile.ZipFile(path) as archive:
            _check_members(path, archive, limit)
            for member in archive.infolist():
                with archive.open(member) as content:
                    # 0 is no checksum: torch.serialization.set_crc32_options(False) leaves it
                    while member.CRC and content.read(_PIECE):
                        pass
    except TieringError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        name = "" if member is None else f" {member.filename}"
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: expected {what}, found a damaged archive:{name} ({reason}); get it again") from error


def _check_members(path: Path, archive: zipfile.ZipFile, limit: int) -> None:
    names = [name for name in archive.namelist() if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(names) != 1:
        found = ", ".join(sorted(archive.namelist())[:4])
        raise InputError(f"{path}: expected a file of torch.save, found an archive of {found or 'nothing'}")
    for member in archive.infolist():
        if member.compress_type != zipfile.ZIP_STORED:
            raise InputError(
                f"{path}: expected {member.filename} uncompressed, found it compressed; save it again with torch.save"
            )
    if (size := archive.getinfo(names[0]).file_size) > limit:
        raise InputError(
            f"{path}: data.pkl has {size} bytes, more than the limit of {limit} for memory; save arrays as "
            "tensors (torch.from_numpy), which stay in the file"
        )
    order = names[0].replace("data.pkl", "byteorder")
    if order in archive.namelist() and archive.getinfo(order).file_size != len("little"):
        raise InputError(f"{path}: expected little-endian tensors, found others; save the file again on this machine")


@contextmanager
def _allowed_names(serialization: Any) -> Iterator[None]:
    """Let files name what is listed below, and nothing that others have allowed; before torch 2.4 tensors alone."""
    if not hasattr(serialization, "add_safe_globals"):
        yield
        return
    others = serialization.get_safe_globals()
    serialization.clear_safe_globals()
    serialization.add_safe_globals(_NAMES)
    try:
        yield
    finally:
        serialization.clear_safe_globals()
        serialization.add_safe_globals(others)


def _stand_in(path: str, base: type) -> type:
    module, _, name = path.rpartition(".")
    return type(name, (base,), {"__module__": module, "__qualname__": name})


def _function(path: str, function: Any) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        return function(*args)

    call.__module__, _, call.__name__ = path.rpartition(".")
    call.__qualname__ = call.__name__
    return call


_PYG = "torch_geometric.data."
_OBJECTS = ("data.Data", "hetero_data.HeteroData", "data.DataEdgeAttr", "data.DataTensorAttr", "graph_store.EdgeAttr",
            "feature_store.TensorAttr")  # fmt: skip
_NAMES: list[Any] = [
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in "?bhilqBHILQefdSU"},
    _function("builtins.bytes", lambda: b""),  # how protocol 2 writes no bytes
    *(_stand_in(f"{_PYG}{name}", StoredObject) for name in _OBJECTS),
    *(_stand_in(f"{_PYG}storage.{name}Storage", _StoredMapping) for name in ("Base", "Global", "Node", "Edge")),
]  # names that files may use besides tensors, containers, numbers and text
for _core in ("numpy.core.multiarray", "numpy._core.multiarray"):  # before and since numpy 2
    _NAMES += [
        _function(f"{_core}._reconstruct", np.empty(0).__reduce__()[0]),
        _function(f"{_core}.scalar", np.float32(0).__reduce__()[0]),
    ]
