"""Pickles read as data: an interpreter of our own that builds values and runs nothing.

Python's unpickler calls what a pickle names. This one knows the opcodes of protocols 2 to 5, makes containers, numbers,
text and numpy arrays, and takes of other names only those that it is given. A pickle that means harm is refused: by
the names in it, and by limits to the number of values, to nesting, and to what repeated references add up to.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tiering.errors import InputError, TieringError, shown
from tiering.formats.pickled_numpy import NDARRAY, NUMPY_CALLS, DamagedError, Name, PickledArray, PickledDtype, named

MAX_VALUES = 1 << 22
"""Opcodes of a pickle, and values of its result if what is referred to repeatedly is counted each time."""
MAX_DEPTH = 64
"""Containers inside one another."""

_ATOMS = (str, bytes, int, float, type(None), np.number, np.bool_)
_LONGEST = 16
"""Arguments of a call, and values of a tuple that is a key: as many as anything has, since each costs time again."""


@dataclass(frozen=True)
class Allowed:
    """What a pickle may name besides numpy's arrays, and what becomes of it."""

    calls: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    """Name of a function -> what makes the value from its arguments."""
    objects: Mapping[str, Callable[[Mapping[str, Any]], Any]] = field(default_factory=dict)
    """Name of a class -> what makes the value from the state of an object, which is a dictionary."""
    parts: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name of a class -> the only entries of the state that count, where not all do."""
    names: frozenset[str] = frozenset()
    """Names that may be values."""
    stored: Callable[[Any], Any] | None = None
    """Makes the value that lies outside the pickle from what identifies it."""


@dataclass(eq=False)
class _Made:
    """An object that its state is still to come for."""

    name: str
    state: Any = None


class _Mark:
    """Where the elements of a container begin on the stack."""


_MARK = _Mark()


def unpickle(data: bytes, where: str, allowed: Allowed) -> Any:
    """The value that a pickle describes.

    Parameters
    ----------
    data
        The pickle.
    where
        The file, for messages.
    allowed
        What it may name. Names that are left as values are `Name`.

    Raises
    ------
    InputError
        If it names something else, is damaged, or nests or repeats values without measure.
    """
    try:
        return _Resolver(allowed).resolve(_Machine(data, allowed).run())[0]
    except TieringError as error:
        raise InputError(f"{where}: {error}") from error
    except Exception as error:  # a damaged pickle asks for anything, such as a sum of text and lists
        reason = " ".join(str(error).split())[:120] or type(error).__name__
        raise InputError(f"{where}: damaged pickle ({reason}); get the file again") from error


def _refuse_name(name: str) -> InputError:
    return InputError(
        f"expected data alone, found {shown(name)} of Python's, which is not on the list of what is read without being "
        "run; save tensors, numpy arrays, numbers and text in dictionaries, lists and tuples"
    )


class _Machine:
    """The stack, the memo and the place in the pickle."""

    def __init__(self, data: bytes, allowed: Allowed) -> None:
        self.data, self.place, self.allowed = data, 0, allowed
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self.copied = 0
        self.calls: dict[str, Callable[..., Any]] = {**NUMPY_CALLS, **allowed.calls, "_codecs.encode": self._encode}
        self.calls["collections.OrderedDict"] = _ordered
        for module in ("builtins", "__builtin__"):  # as Python 3 and protocol 2 spell it
            self.calls |= {f"{module}.set": self._set, f"{module}.frozenset": self._frozen, f"{module}.bytes": _nothing}
        self.known = {*self.calls, *allowed.objects, *allowed.names, NDARRAY}

    def run(self) -> Any:
        for _ in range(MAX_VALUES):
            code = self.take(1)[0]
            if code == _STOP:
                return self._last()
            if code in _CONSTANTS:
                self.stack.append(_CONSTANTS[code])
            elif code in _NUMBERS:
                self.stack.append(self.number(_NUMBERS[code]))
            elif code in _TEXTS:
                size, decode = _TEXTS[code]
                self.stack.append(decode(self.take(self.number(size))))
            elif code in _STEPS:
                _STEPS[code](self)
            else:
                raise DamagedError(f"byte {self.place - 1}: operation {code:#04x} is none of protocols 2 to 5")
        raise DamagedError(f"it holds more than {MAX_VALUES} values; save them as arrays")

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.place:
            raise DamagedError(f"byte {self.place}: {size} bytes announced, {len(self.data) - self.place} are left")
        self.place += size
        return self.data[self.place - size : self.place]

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def line(self) -> str:
        end = self.data.index(b"\n", self.place)
        return self.take(end + 1 - self.place)[:-1].decode()

    def pop(self) -> Any:
        value = self.stack.pop()
        if value is _MARK:
            raise DamagedError("a value is missing")
        return value

    def top(self, kind: type | tuple[type, ...]) -> Any:
        if not isinstance(self.stack[-1], kind):
            raise DamagedError(f"elements for {type(self.stack[-1]).__name__}")
        return self.stack[-1]

    def marked(self) -> list[Any]:
        """What lies above the last mark, which goes with it."""
        for place in range(len(self.stack) - 1, -1, -1):
            if self.stack[place] is _MARK:
                values = self.stack[place + 1 :]
                del self.stack[place:]
                return values
        raise DamagedError("a mark is missing")

    def _last(self) -> Any:
        if len(self.stack) != 1 or self.place != len(self.data):
            raise DamagedError(f"it ends with {len(self.stack)} values, at byte {self.place} of {len(self.data)}")
        return self.pop()

    def name(self, module: Any, name: Any) -> None:
        if not isinstance(module, str) or not isinstance(name, str):
            raise DamagedError("a name that is no text")
        if f"{module}.{name}" not in self.known:
            raise _refuse_name(f"{module}.{name}")
        self.stack.append(Name(f"{module}.{name}"))

    def reduce(self) -> None:
        arguments, function = self.pop(), self.pop()
        if not isinstance(function, Name) or function.name not in self.calls or not isinstance(arguments, tuple):
            raise DamagedError("a call of what is no function")
        if len(arguments) > _LONGEST:
            raise DamagedError(f"a call with {len(arguments)} arguments")
        self.stack.append(self.calls[function.name](*arguments))

    def new(self) -> None:
        arguments, kind = self.pop(), self.pop()
        if not isinstance(kind, Name) or kind.name not in self.allowed.objects or arguments != ():
            raise DamagedError("an object of what is no class")
        self.stack.append(_Made(kind.name))

    def build(self) -> None:
        state = self.pop()
        target = self.top((_Made, PickledArray, PickledDtype, dict))
        if isinstance(target, (PickledArray, PickledDtype)):
            if not isinstance(state, tuple) or len(state) > _LONGEST:
                raise DamagedError("an array with a state that is none")
            target.build(*state)
        elif isinstance(target, _Made):
            if not isinstance(state, dict):
                state = {"": state}
            parts = self.allowed.parts.get(target.name)
            target.state = state if parts is None else {key: state[key] for key in parts}
        # What a dictionary carries beside its entries, such as the versions of a module, is not read.

    def append(self, values: list[Any]) -> None:
        self.top(list).extend(values)

    def set_items(self, values: list[Any]) -> None:
        target = self.top(dict)
        for key, value in zip(values[::2], values[1::2], strict=True):
            target[_hashable(key)] = value

    def persistent(self) -> None:
        if self.allowed.stored is None:
            raise DamagedError("it refers to something outside")
        self.stack.append(self.allowed.stored(self.pop()))

    def remember(self, place: int) -> None:
        if self.stack[-1] is _MARK:
            raise DamagedError("a value is missing")
        self.memo[place] = self.stack[-1]

    def _copies(self, size: int) -> None:
        """Count what calls copy: the same large value could be copied again and again."""
        self.copied += size
        if self.copied > len(self.data):
            raise DamagedError("it copies more than it holds")

    def _encode(self, text: str, coding: str) -> bytes:
        if coding != "latin1":
            raise DamagedError(f"text coded as {named(coding)}")
        self._copies(len(text))
        return text.encode("latin1")

    def _set(self, values: Iterable[Any] = ()) -> set[Any]:
        if not isinstance(values, list):
            raise DamagedError("a set of what is no list")
        self._copies(len(values))
        return set(map(_hashable, values))

    def _frozen(self, values: Any = ()) -> frozenset[Any]:
        return frozenset(self._set(values))


def _hashable(key: Any) -> Any:
    """A key of a dictionary, or an element of a set: a plain value, or a flat tuple of such."""
    if isinstance(key, _ATOMS) or (
        isinstance(key, tuple) and len(key) <= _LONGEST and all(isinstance(part, _ATOMS) for part in key)
    ):
        return key
    raise DamagedError(f"{type(key).__name__} as a key")


def _long(data: bytes) -> int:
    if len(data) > 9:  # 64 bits and a sign
        raise DamagedError(f"a whole number of {len(data)} bytes")
    return int.from_bytes(data, "little", signed=True)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


_STOP = ord(".")
_CONSTANTS: dict[int, Any] = {ord("N"): None, 0x88: True, 0x89: False, ord(")"): (), ord("("): _MARK}
_NUMBERS = {ord("J"): "<i", ord("K"): "<B", ord("M"): "<H", ord("G"): ">d"}
_TEXTS: dict[int, tuple[str, Callable[[bytes], Any]]] = {
    0x8A: ("<B", _long),
    0x8B: ("<I", _long),
    0x8C: ("<B", _text),
    ord("X"): ("<I", _text),
    0x8D: ("<Q", _text),
    ord("C"): ("<B", bytes),
    ord("B"): ("<I", bytes),
    0x8E: ("<Q", bytes),
    0x96: ("<Q", bytes),
}
"""Operation -> how its length is written, and what makes the value of so many bytes."""
_STEPS: dict[int, Callable[[_Machine], Any]] = {
    0x80: lambda m: _protocol(m.take(1)[0]),
    0x95: lambda m: m.take(8),
    ord("]"): lambda m: m.stack.append([]),
    ord("}"): lambda m: m.stack.append({}),
    0x8F: lambda m: m.stack.append(set()),
    0x91: lambda m: m.stack.append(frozenset(map(_hashable, m.marked()))),
    0x90: lambda m: _add(m, m.marked()),
    ord("t"): lambda m: m.stack.append(tuple(m.marked())),
    0x85: lambda m: m.stack.append((m.pop(),)),
    0x86: lambda m: m.stack.append(_last_of(m, 2)),
    0x87: lambda m: m.stack.append(_last_of(m, 3)),
    ord("a"): lambda m: m.append([m.pop()]),
    ord("e"): lambda m: m.append(m.marked()),
    ord("s"): lambda m: m.set_items(list(_last_of(m, 2))),
    ord("u"): lambda m: m.set_items(m.marked()),
    ord("0"): lambda m: m.pop(),
    ord("q"): lambda m: m.remember(m.number("<B")),
    ord("r"): lambda m: m.remember(m.number("<I")),
    0x94: lambda m: m.remember(len(m.memo)),
    ord("h"): lambda m: m.stack.append(m.memo[m.number("<B")]),
    ord("j"): lambda m: m.stack.append(m.memo[m.number("<I")]),
    ord("c"): lambda m: m.name(m.line(), m.line()),
    0x93: lambda m: m.name(*_last_of(m, 2)),
    ord("R"): _Machine.reduce,
    0x81: _Machine.new,
    ord("b"): _Machine.build,
    ord("Q"): _Machine.persistent,
}


def _protocol(version: int) -> None:
    if not 2 <= version <= 5:
        raise DamagedError(f"protocol {version}")


def _last_of(machine: _Machine, count: int) -> tuple[Any, ...]:
    return tuple(machine.pop() for _ in range(count))[::-1]


def _add(machine: _Machine, values: list[Any]) -> None:
    machine.top(set).update(map(_hashable, values))


def _ordered() -> dict[Any, Any]:
    return {}


def _nothing() -> bytes:
    return b""


class _Resolver:
    """Puts finished values in place of those whose state came late; refuses cycles, depth and multiplied references."""

    def __init__(self, allowed: Allowed) -> None:
        self.allowed = allowed
        self.known: dict[int, tuple[Any, int, int]] = {}
        self.open: set[int] = set()

    def resolve(self, value: Any) -> tuple[Any, int, int]:
        """The finished value, how many values it has in it, and how many containers lie inside one another."""
        if isinstance(value, (PickledArray, PickledDtype)):
            if value.value is None:
                raise DamagedError("an array without content")
            return value.value, 1, 0
        if not isinstance(value, (list, tuple, dict, _Made)):
            return value, 1, 0
        if id(value) not in self.known:
            if id(value) in self.open:
                raise DamagedError("a container that is in itself")
            self.open.add(id(value))
            self._limit(len(self.open))
            made, size, height = self._resolved(value)
            self._limit(height)
            self.open.remove(id(value))
            self.known[id(value)] = made, size, height
        return self.known[id(value)]

    def _limit(self, height: int) -> None:
        if height > MAX_DEPTH:
            raise DamagedError(f"more than {MAX_DEPTH} containers inside one another")

    def _resolved(self, value: Any) -> tuple[Any, int, int]:
        if isinstance(value, _Made):
            if value.state is None:
                raise DamagedError(f"a {value.name} without content")
            state, size, height = self.resolve(value.state)
            return self.allowed.objects[value.name](state), size, height + 1
        parts = [self.resolve(part) for part in (value.values() if isinstance(value, dict) else value)]
        size, height = 1 + sum(count for _, count, _ in parts), 1 + max((inside for *_, inside in parts), default=0)
        if size > MAX_VALUES:
            raise DamagedError(f"values that refer to one another are more than {MAX_VALUES} in all")
        if isinstance(value, dict):
            return {key: part for key, (part, _, _) in zip(value, parts, strict=True)}, size, height
        return (tuple if isinstance(value, tuple) else list)(part for part, _, _ in parts), size, height
