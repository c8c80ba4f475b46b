"""The identity of a layer's function: digests of its tensors and of all else that it refers to, equal in every process.

An object is what pickle would save of it, but functions are their code, and packages their names and versions.
"""

from __future__ import annotations

import copyreg
import dis
import importlib
import pickle
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import CodeType, FunctionType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import xxhash

from tiering.artifacts.artifact import Artifact
from tiering.errors import InputError, ModelError
from tiering.loader.open_tables import OpenTables

_MOST_PARTS, _MOST_BYTES = 1_000_000, 1 << 32  # of a function, strings and numbers too; of an array
_ATTRIBUTES: dict[type, str] = {
    CodeType: "co_code co_exceptiontable co_flags co_argcount co_posonlyargcount co_kwonlyargcount co_consts co_names "
    "co_varnames co_freevars co_cellvars",
    MethodType: "__func__ __self__", staticmethod: "__func__", classmethod: "__func__", property: "fget",
}  # fmt: skip
_MAKING = ("__new__", "__init__", "__init_subclass__", "__getstate__", "__setstate__", "__reduce__", "__reduce_ex__")
_OMITTED = ("_flat_weights", "_flat_weight_refs")  # attributes of a module that repeat others
_HOOKS = ("_hooks", "_with_kwargs", "_always_called")  # ends of the names of what a module has by numbers


@dataclass(frozen=True)
class LayerIdentity:
    """The identity of one layer's function."""

    parameters: str  # digest of its tensors
    code: str  # digest of all else
    unknown: list[str]  # objects that cannot be compared, by name; `code` has their types only
    modules: list[tuple[str, Any]] = field(
        compare=False
    )  # that the function refers to, also those in others, by the name that refers to each


def identify_layers(layers: Sequence[Any]) -> list[LayerIdentity]:
    """Return the identity of each layer; refuse modules in training mode, and parameters without values."""
    return [_Walk(f"layer {number}", [], {"forward"}).identify(layer) for number, layer in enumerate(layers)]


class _Walk(pickle.Pickler):
    """A pickler whose stream makes a digest, and is not kept."""

    def __init__(self, where: str, classes: list[type], names: set[str]) -> None:
        self._where, self._classes, self._names = where, classes, names
        self._code, self._tensors, self._unknown = xxhash.xxh3_128(), xxhash.xxh3_128(), list[str]()
        self._parts, self._name, self._modules = 0, "the module", list[tuple[str, Any]]()
        super().__init__(SimpleNamespace(write=self._code.update), 4)

    def identify(self, value: Any) -> LayerIdentity:
        """Return a function's identity; methods of users' classes count if code has their name, or may call them."""
        try:
            self.dump(value)
            done = set[tuple[type, str]]()
            while new := [
                (c, n) for c in self._classes for n in sorted(vars(c)) if self._calls(c, n) and (c, n) not in done
            ]:
                for cls, name in new:
                    self.dump((cls.__qualname__, name, vars(cls)[name]))
                done.update(new)
        except (ModelError, InputError):
            raise
        except Exception as error:  # too deep, too large, or code of the user fails
            self._unknown.append(f"{self._where} refers to {self._name} ({type(error).__name__}: {error})")
        return LayerIdentity(self._tensors.hexdigest(), self._code.hexdigest(), self._unknown, self._modules)

    def _calls(self, cls: type, name: str) -> bool:
        """Return whether code may reach a class's attribute, by name, by a protocol, or as one of a base."""
        if name.startswith("__"):
            return isinstance(vars(cls)[name], FunctionType) and (name not in _MAKING or cls.__name__ in self._names)
        return name != "_abc_impl" and (name in self._names or any(hasattr(base, name) for base in cls.__bases__))

    def persistent_id(self, value: Any) -> Any:
        """Return a stand-in for a string, which pickle would save once, or for a set, which has no order."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise ValueError("too many parts")
        if type(value) is str:
            self._name = value or self._name
            return value.encode("utf-8", "surrogatepass")
        if type(value) not in (set, frozenset):
            return None
        walks = [_Walk(self._where, self._classes, self._names) for _ in value]
        for walk, part in zip(walks, value, strict=True):
            walk.dump(part)
            self._unknown += walk._unknown
        return tuple(sorted(walk._code.digest() + walk._tensors.digest() for walk in walks))

    def reducer_override(self, value: Any) -> Any:
        """Return the parts of an object: in the place of a state, since it may be one of them itself."""
        kind = type(value)
        if value is str:
            return NotImplemented
        if (parts := self._own_parts(value)) is not None:
            return str, (kind.__qualname__,), list(parts)
        try:
            reduce = copyreg.dispatch_table.get(kind)
            saved = reduce(value) if reduce else value.__reduce_ex__(4)
            if kind is object or isinstance(value, np.ndarray):
                raise TypeError("without content, or too large")
        except Exception:  # pickle refuses it
            self._unknown.append(f"{self._where} refers to {self._name} ({kind.__module__}.{kind.__qualname__})")
            return str, (kind.__qualname__,)
        if not isinstance(saved, str):
            return saved
        return str, (str(getattr(value, "__module__", "")), saved), [getattr(value, "__wrapped__", None)]

    def _own_parts(self, value: Any) -> Iterator[Any] | None:
        """Return the parts of what pickle refuses or saves by name only; ``None`` for other objects."""
        import torch

        kind = type(value)
        if isinstance(value, torch.nn.Module):
            return self._module(vars(value).get("_modules", {}).get("_orig_mod", value))
        if isinstance(value, torch.Tensor):
            return self._tensor(value)
        if kind in (np.ndarray, np.memmap) and value.dtype != object and value.nbytes <= _MOST_BYTES:
            data = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
            return iter((str(value.dtype), value.shape, xxhash.xxh3_128_digest(data.data)))
        if isinstance(value, FunctionType):
            return self._function(value)
        if kind in _ATTRIBUTES:
            if kind is CodeType:
                self._names.update(value.co_names, (c for c in value.co_consts if isinstance(c, str)))
            return (getattr(value, name, None) for name in _ATTRIBUTES[kind].split())
        if isinstance(value, type):
            package = _package(value.__module__)
            self._classes += [value] if package is None and value not in self._classes else []
            return iter((value.__module__, value.__qualname__, package or value.__bases__))
        if isinstance(value, ModuleType):
            return iter((value.__name__, _package(value.__name__)))
        if isinstance(value, Artifact | OpenTables):
            return iter((value.digest,))
        return iter(()) if kind.__module__ == "torch_geometric.inspector" else None  # which says again what a class is

    def _module(self, module: Any) -> Iterator[Any]:
        if module.training:
            raise InputError(
                f"{self._where}: {self._name} ({type(module).__name__}) is in training mode; call its eval() first"
            )
        self._modules.append((self._name, module))
        yield type(module)
        for name, part in sorted(vars(module).items()):
            if name not in _OMITTED and "state_dict" not in name and "backward" not in name:
                yield name, list(part.values()) if name.endswith(_HOOKS) else part

    def _tensor(self, tensor: Any) -> Iterator[Any]:
        import torch

        if tensor.is_meta or isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):  # type: ignore[attr-defined]
            reason = "is on device 'meta'" if tensor.is_meta else "belongs to a lazy module that has seen no input"
            raise ModelError(f"{self._where}: {self._name} has no values: it {reason}; give it values first")
        names = {
            torch.strided: ("detach",), torch.sparse_coo: ("_indices", "_values"),
            torch.sparse_csr: ("crow_indices", "col_indices", "values"),
            torch.sparse_bsr: ("crow_indices", "col_indices", "values"),
        }.get(tensor.layout, ("ccol_indices", "row_indices", "values"))  # fmt: skip
        self._tensors.update(repr((self._name, tensor.dtype, tensor.layout, tuple(tensor.shape))).encode())
        for part in (getattr(tensor.detach(), name)() for name in names):
            flat = part.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
            self._tensors.update(flat.view(torch.uint8).numpy().data)
        yield "tensor"

    def _function(self, function: Any) -> Iterator[Any]:
        """Yield a function's code, defaults, closure and attributes, and of a user's its globals; else its name."""
        code, package = function.__code__, _package(function.__module__ or "")
        if package is not None:
            yield f"{package} {function.__module__}.{function.__qualname__}"
            if "<locals>" not in function.__qualname__:
                return
        yield from (code, function.__defaults__, function.__kwdefaults__, vars(function))
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield name, None if name == "__class__" else cell.cell_contents
            except ValueError:
                raise ModelError(
                    f"{self._where}: {function.__qualname__} refers to {name}, which has no value yet; set it first"
                ) from None
        yield from _global_values(code, function.__globals__) if package is None else ()


def _global_values(code: CodeType, known: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the globals that code reads, by name; of a user's module those that the code may read of it."""
    codes, names, used = [code], set[str](), dict[str, Any]()
    for inner in codes:
        codes += [constant for constant in inner.co_consts if isinstance(constant, CodeType)]
        names.update(inner.co_names)
        for step in dis.get_instructions(inner):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME") and step.argval in known:
                used[step.argval] = known[step.argval]
            elif step.opname == "IMPORT_NAME":
                with suppress(Exception):  # the call will say so
                    used[step.argval] = importlib.import_module(step.argval)
    found, seen = sorted(used.items()), set[int]()
    for name, value in found:
        yield name, value
        if isinstance(value, ModuleType) and _package(value.__name__) is None and id(value) not in seen:
            seen.add(id(value))
            found += [(f"{name}.{n}", vars(value)[n]) for n in sorted(names & vars(value).keys())]


def _package(module: str) -> str | None:
    """Return the name and version of the installed package that has a module; ``None`` for a user's own module."""
    top, found = module.partition(".")[0], sys.modules.get(module)
    file = getattr(found, "__file__", None) or ""
    if top == "__main__" or found is None or (file and not {"site-packages", "dist-packages"} & {*file.split("/")}):
        return top if top in ("tiering", *sys.stdlib_module_names) and top != "__main__" else None
    return f"{top} {getattr(sys.modules.get(top), '__version__', '')}"
