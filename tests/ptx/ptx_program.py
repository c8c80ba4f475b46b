"""Kernels as nvcc compiled them: the text of PTX, translated to Python.

Every kernel becomes a generator function, and a call of it is one thread. Registers are local variables that hold
whole numbers from 0 on, of as many bits as they were declared with (of float32 its bits); a register that is read
before it is written is an UnboundLocalError. A thread yields ``None`` where the scheduler may go on with another one
(atomics, fences, accesses that go to memory at once), and a `Meeting` where the threads of a warp wait for each other.
Other floats, calls, textures, and what threads of a block share (shared memory, barriers) are refused by name.

Source: PTX ISA 9.0, sections 4 (syntax), 5 (state spaces), 9 (instructions).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

PARAMETERS, LOCAL = 1 << 56, 1 << 57
"""Where the parameters of a kernel and a thread's own memory begin among generic addresses."""
_SPECIAL = {"tid.x", "ntid.x", "ctaid.x", "nctaid.x", "laneid", "globaltimer"}
_STRONG = {"relaxed", "acquire", "volatile", "mmio", "cg", "cv"}


class UnsupportedError(Exception):
    """An instruction that is not translated."""


class Meeting(NamedTuple):
    """What a thread waits with until all threads of `mask` have come."""

    kind: str
    mask: int
    values: tuple[int, ...] = ()


class Parameter(NamedTuple):
    """Place of a parameter of a kernel in its memory, in bytes."""

    offset: int
    size: int


@dataclass(frozen=True)
class Kernel:
    """A kernel, ready to run."""

    name: str
    parameters: tuple[Parameter, ...]
    local_bytes: int
    """Memory of each thread."""
    source: str
    """The Python that it was translated to."""
    thread: Callable[..., Generator[Meeting | None, Any, None]]
    """Called with lane, memory, parameters, and the special registers by name."""
    ran: set[int]
    """Numbers of the blocks that have run: a block ends with a branch, and before a label."""


def read_kernels(path: Path) -> dict[str, Kernel]:
    """Translate all kernels of a file, by symbol."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    entries = re.finditer(r"\.entry\s+(\w+)\s*\((.*?)\)\s*(?:\.\w+[^\n{]*\n)*\s*\{\n(.*?)\n\}", text, re.DOTALL)
    return {entry[1]: _Translation(entry[1], entry[2], entry[3]).kernel() for entry in entries}


def signed(value: int, bits: int) -> int:
    """The signed number that `bits` bits stand for."""
    half = 1 << (bits - 1)
    return (value ^ half) - half


def divide(a: int, b: int) -> int:
    """Quotient, rounded toward zero."""
    return a // b if (a < 0) == (b < 0) else -(-a // b)


def single(operation: str, a: int, b: int = 0) -> int:
    """The bits of a sum or product of two float32, or of a whole number as one; float64 in between rounds alike."""
    x, y = struct.unpack("<2f", struct.pack("<2I", a, b)) if operation != "whole" else (a, 0)
    with np.errstate(all="ignore"):
        value = {"add": x + y, "mul": x * y, "whole": x}[operation]
        return int(np.float32(value).view(np.uint32))


def remainder(a: int, b: int) -> int:
    """Remainder of `divide`."""
    return a - b * divide(a, b)


class _Translation:
    """The translation of one kernel."""

    def __init__(self, name: str, parameters: str, body: str) -> None:
        self._name = name
        self._parameters: list[Parameter] = []
        self._symbols: dict[str, int] = {}
        self._widths: dict[str, int] = {}
        self._local_bytes = 0
        self._blocks: list[list[str]] = [[]]
        self._lengths: list[int] = [0]
        self._labels: dict[str, int] = {}
        self._last_block = 0
        end = 0
        for align, bits, symbol, count in re.findall(
            r"\.param\s+(?:\.align\s+(\d+)\s+)?\.[busf](\d+)(?:\s+\.ptr[^,]*?)?\s+(\w+)(?:\[(\d+)\])?", parameters
        ):
            size = int(bits) // 8 * int(count or 1)
            unit = int(align or int(bits) // 8)
            begin = -(-end // unit) * unit
            self._symbols[symbol] = PARAMETERS + begin
            self._parameters.append(Parameter(begin, size))
            end = begin + size
        statements = re.findall(r"\$?\w+:|[^;{}\s][^;]*;|[{}]", body)
        for statement in statements:  # where labels stand is known before the first branch is written
            self._declare_label(statement)
        for statement in statements:
            self._statement(statement.strip())

    def kernel(self) -> Kernel:
        """Compile the translation."""
        arguments = ", ".join(name.replace(".", "_") for name in sorted(_SPECIAL - {"laneid", "globaltimer"}))
        lines = [
            f"def thread(lane, memory, parameters, {arguments}):",
            "    load, load_many, store, laneid = memory.load, memory.load_many, memory.store, lane.number",
            "    at = 0",
            "    while True:",
            *self._tree(0, len(self._blocks), "        "),
            "    yield",
        ]
        source = "\n".join(lines)
        ran: set[int] = set()
        names: dict[str, Any] = {
            "run": ran.add,
            "Meeting": Meeting,
            "signed": signed,
            "divide": divide,
            "remainder": remainder,
            "single": single,
        }
        exec(compile(source, f"<{self._name}>", "exec"), names)  # noqa: S102
        return Kernel(self._name, tuple(self._parameters), self._local_bytes, source, names["thread"], ran)

    def _tree(self, begin: int, end: int, indent: str) -> list[str]:
        """Find the block `at` by halving."""
        if end - begin == 1:
            following = [f"at = {end}", "continue"] if end < len(self._blocks) else ["return"]
            counted = f"lane.executed += {self._lengths[begin]}; run({begin})"
            return [indent + line for line in [counted, *self._blocks[begin], *following]]
        middle = (begin + end) // 2
        deeper = indent + "    "
        return [
            f"{indent}if at < {middle}:", *self._tree(begin, middle, deeper),
            f"{indent}else:", *self._tree(middle, end, deeper),
        ]  # fmt: skip

    def _declare_label(self, statement: str) -> None:
        if statement.endswith(":"):
            self._last_block += 1
            self._labels[statement[:-1]] = self._last_block
        elif re.search(r"\bbra\b", statement):
            self._last_block += 1

    def _statement(self, text: str) -> None:
        if text in "{}":
            return
        if text.endswith(":"):
            self._begin_block()
            return
        text = text.rstrip(";").strip()
        if text.startswith("."):
            self._declaration(text)
            return
        guard = ""
        if text[0] == "@":
            predicate, text = text.split(None, 1)
            guard = f"if {'not ' if predicate[1] == '!' else ''}{predicate.lstrip('@!%')}: "
        operation, _, rest = text.partition(" ") if " " in text.split("\t")[0] else text.partition("\t")
        operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", rest)
        lines = self._instruction(operation.strip().split("."), operands)
        self._blocks[-1] += [guard + "; ".join(lines)] if guard else lines
        self._lengths[-1] += 1
        if operation.startswith("bra"):
            self._begin_block()

    def _begin_block(self) -> None:
        self._blocks.append([])
        self._lengths.append(0)

    def _declaration(self, text: str) -> None:
        if register := re.match(r"\.reg\s+\.([a-z]+)(\d*)\s+(.*)", text):
            for name in re.split(r"\s*,\s*", register[3]):
                self._widths[re.sub(r"<\d+>", "", name).lstrip("%")] = int(register[2] or 1)
        elif local := re.match(r"\.local\s+\.align\s+(\d+)\s+\.b8\s+(\w+)\[(\d+)\]", text):
            begin = -(-self._local_bytes // int(local[1])) * int(local[1])
            self._symbols[local[2]] = LOCAL + begin
            self._local_bytes = begin + int(local[3])
        elif not text.startswith((".loc", ".pragma", ".file")):
            raise self._unsupported(text)

    def _unsupported(self, text: str) -> UnsupportedError:
        shared = ": what threads of a block share is not run here" if re.search(r"shared|bar(rier)?\.", text) else ""
        return UnsupportedError(f"{self._name}: {text!r} is not translated{shared}")

    def _width(self, register: str) -> int:
        return self._widths[re.sub(r"\d+$", "", register.lstrip("%"))]

    def _value(self, operand: str, bits: int = 64) -> str:
        """A register or a number, as Python."""
        if operand[0] == "%":
            name = operand[1:]
            if name == "globaltimer":
                return "memory.time()"
            if "." in name and name not in _SPECIAL:
                raise self._unsupported(operand)
            return name.replace(".", "_")
        if operand in self._symbols:
            return str(self._symbols[operand])
        try:
            if operand.startswith("0f"):
                return str(int(operand[2:], 16))
            return str(int(operand, 0) & ((1 << bits) - 1))
        except ValueError:
            raise self._unsupported(operand) from None

    def _address(self, operand: str) -> str:
        found = re.match(r"\[([^+\]\s]+)(?:\+(-?\d+))?\]", operand)
        assert found is not None
        base = self._value(found[1])
        return f"{base} + {found[2]}" if found[2] else base

    def _instruction(self, parts: list[str], operands: list[str]) -> list[str]:
        name, kind = parts[0], parts[-1]
        special = getattr(self, f"_{name}", None)
        if special is not None:
            found: list[str] = special(parts, operands)
            return found
        if kind == "pred":
            return self._of_predicates(name, operands)
        if kind == "f32" and name in ("add", "mul") and len(parts) <= 3 and parts[1] in ("f32", "rn"):
            return [f"{operands[0][1:]} = single('{name}', {', '.join(map(self._value, operands[1:]))})"]
        if name not in _ARITHMETIC or kind[0] not in "usb":
            raise self._unsupported(f"{'.'.join(parts)} {', '.join(operands)}")
        bits, form = int(kind[1:]), name
        if name in ("mul", "mad"):
            form += "." + parts[1]
        expression = _ARITHMETIC[form] if name == form else _ARITHMETIC[name][parts[1]]
        values = [self._value(operand, bits) for operand in operands[1:]]
        plain = dict(zip("abc", values, strict=False))
        of_sign = {key.upper(): f"signed({value}, {bits})" if kind[0] == "s" else value for key, value in plain.items()}
        mask = (1 << (2 * bits if "wide" in parts else bits)) - 1
        return [f"{operands[0][1:]} = {expression.format(**plain, **of_sign, bits=bits, mask=mask)}"]

    def _of_predicates(self, name: str, operands: list[str]) -> list[str]:
        forms = {"mov": "bool({})", "not": "not {}", "and": "{} and {}", "or": "{} or {}", "xor": "{} != {}"}
        if name not in forms:
            raise self._unsupported(f"{name}.pred")
        values = [f"(not {v[2:]})" if v[0] == "!" else self._value(v) for v in operands[1:]]
        return [f"{operands[0][1:]} = {forms[name].format(*values)}"]

    def _bra(self, parts: list[str], operands: list[str]) -> list[str]:
        return [f"at = {self._labels[operands[0]]}", "continue"]

    def _ret(self, parts: list[str], operands: list[str]) -> list[str]:
        return ["return"]

    _exit = _ret

    def _mov(self, parts: list[str], operands: list[str]) -> list[str]:
        if parts[-1] == "pred":
            return self._of_predicates("mov", operands)
        into, source = operands
        bits = int(parts[-1][1:])
        if into[0] == "{":
            names = _names(into)
            part = bits // len(names)
            value, mask = self._value(source), (1 << part) - 1
            return [f"{name} = {value} >> {part * i} & {mask}" for i, name in enumerate(names)]
        if source[0] == "{":
            values = [self._value(v) for v in re.split(r"\s*,\s*", source.strip("{} "))]
            part = bits // len(values)
            return [f"{into[1:]} = " + " | ".join(f"{value} << {part * i}" for i, value in enumerate(values))]
        return [f"{into[1:]} = {self._value(source, bits)}"]

    def _cvta(self, parts: list[str], operands: list[str]) -> list[str]:
        return [f"{operands[0][1:]} = {self._value(operands[1])}"]

    def _cvt(self, parts: list[str], operands: list[str]) -> list[str]:
        into, source = parts[-2], parts[-1]
        if parts[1:3] == ["rn", "f32"] and source[0] in "su":
            bits = int(source[1:])
            whole = f"({self._value(operands[1], bits)} & {(1 << bits) - 1})"
            return [f"{operands[0][1:]} = single('whole', {f'signed({whole}, {bits})' if source[0] == 's' else whole})"]
        if {"f", "b"} & {into[0], source[0]} or len(parts) != 3:
            raise self._unsupported(".".join(parts))
        bits = int(source[1:])
        value = f"{self._value(operands[1], bits)} & {(1 << bits) - 1}"
        if source[0] == "s":
            value = f"signed({value}, {bits})"
        width = int(into[1:]) if into[0] == "u" else max(int(into[1:]), self._width(operands[0]))
        return [f"{operands[0][1:]} = {value} & {(1 << width) - 1}"]

    def _bfind(self, parts: list[str], operands: list[str]) -> list[str]:
        value, bits = self._value(operands[1], int(parts[-1][1:])), int(parts[-1][1:])
        place = (
            f"{bits} - ({value}).bit_length() if {value} else -1"
            if "shiftamt" in parts
            else f"({value}).bit_length() - 1"
        )
        return [f"{operands[0][1:]} = ({place}) & 4294967295"]

    def _setp(self, parts: list[str], operands: list[str]) -> list[str]:
        comparison, kind = parts[1], parts[-1]
        symbols = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
        if comparison not in symbols or len(parts) != 3 or kind[0] == "f":
            raise self._unsupported(".".join(parts))
        bits = int(kind[1:])
        a, b = (self._value(operand, bits) for operand in operands[1:])
        if kind[0] == "s" and comparison not in ("eq", "ne"):
            a, b = (f"({value} ^ {1 << (bits - 1)})" for value in (a, b))
        return [f"{operands[0][1:]} = {a} {symbols[comparison]} {b}"]

    def _selp(self, parts: list[str], operands: list[str]) -> list[str]:
        a, b = (self._value(operand, int(parts[-1][1:])) for operand in operands[1:3])
        return [f"{operands[0][1:]} = {a} if {operands[3][1:]} else {b}"]

    def _ld(self, parts: list[str], operands: list[str]) -> list[str]:
        self._refuse_shared(parts, operands)
        size, names = int(parts[-1][1:]) // 8, _names(operands[0])
        strong, address = bool(_STRONG & set(parts)), self._address(operands[1])
        lines = ["yield"] if strong else []
        if "acquire" in parts:
            lines.append(f"{names[0]} = memory.acquire(lane, {address}, {size})")
        elif len(names) > 1:
            lines.append(f"{', '.join(names)} = load_many(lane, {address}, {size}, {len(names)}, {strong})")
        else:
            lines.append(f"{names[0]} = load(lane, {address}, {size}, {strong})")
        if parts[-1][0] == "s":
            lines += [f"{n} = signed({n}, {8 * size}) & {(1 << self._width(n)) - 1}" for n in names]
        return lines

    def _st(self, parts: list[str], operands: list[str]) -> list[str]:
        self._refuse_shared(parts, operands)
        size = int(parts[-1][1:]) // 8
        values = [self._value(v, 8 * size) for v in re.split(r"\s*,\s*", operands[1].strip("{} "))]
        call = f"(lane, {self._address(operands[0])}, {size}, {', '.join(values)})"
        if {"release", "mmio", "relaxed", "volatile"} & set(parts):
            return [f"memory.publish{call}", "yield"]
        return [f"store{call}"]

    def _atom(self, parts: list[str], operands: list[str]) -> list[str]:
        self._refuse_shared(parts, operands)
        kind, operation = parts[-1], parts[-2]
        changes = {
            "add": "(old + {a}) & {mask}", "min": "min(old, {a})", "max": "max(old, {a})", "exch": "{a}",
            "or": "old | {a}", "and": "old & {a}", "cas": "({b} if old == {a} else old)",
        }  # fmt: skip
        if operation not in changes or kind[0] == "f" or (kind[0] == "s" and operation in ("min", "max")):
            raise self._unsupported(".".join(parts))
        bits = int(kind[1:])
        values = dict(zip("ab", (self._value(v, bits) for v in operands[2:]), strict=False))
        change = changes[operation].format(**values, mask=(1 << bits) - 1)
        address = self._address(operands[1])
        return [
            "yield",
            f"{operands[0].lstrip('%')} = memory.atomic(lane, {address}, {bits // 8}, lambda old: {change})",
        ]

    def _red(self, parts: list[str], operands: list[str]) -> list[str]:
        return self._atom(parts, ["%ignored", *operands])

    def _fence(self, parts: list[str], operands: list[str]) -> list[str]:
        return ["memory.fence(lane)", "yield"]

    _membar = _fence

    def _nanosleep(self, parts: list[str], operands: list[str]) -> list[str]:
        return ["yield"]

    def _bar(self, parts: list[str], operands: list[str]) -> list[str]:
        if parts[:3] != ["bar", "warp", "sync"]:
            raise self._unsupported(".".join(parts))
        return [f"yield Meeting('sync', {self._value(operands[0], 32)})"]

    def _shfl(self, parts: list[str], operands: list[str]) -> list[str]:
        into = [name.lstrip("%") for name in operands[0].split("|")]
        values = ", ".join(self._value(v, 32) for v in operands[1:4])
        meeting = f"yield Meeting('{parts[2]}', {self._value(operands[4], 32)}, ({values}))"
        return [f"{into[0]}, {into[1] if len(into) > 1 else 'ignored'} = {meeting}"]

    def _vote(self, parts: list[str], operands: list[str]) -> list[str]:
        source = operands[1]
        value = f"not {source[2:]}" if source[0] == "!" else self._value(source)
        meeting = f"yield Meeting('{parts[2]}', {self._value(operands[2], 32)}, (int({value}),))"
        return [f"{operands[0][1:]} = {meeting}"]

    def _refuse_shared(self, parts: list[str], operands: list[str]) -> None:
        if any(part.startswith(("shared", "const", "tex")) for part in parts):
            raise self._unsupported(f"{'.'.join(parts)} {', '.join(operands)}")


def _names(operand: str) -> list[str]:
    return [name.lstrip("%") for name in re.split(r"\s*,\s*", operand.strip("{} "))]


_ARITHMETIC: dict[str, Any] = {
    "add": "({a} + {b}) & {mask}",
    "sub": "({a} - {b}) & {mask}",
    "mul": {"lo": "({a} * {b}) & {mask}", "wide": "({A} * {B}) & {mask}", "hi": "({A} * {B}) >> {bits} & {mask}"},
    "mad": {"lo": "({a} * {b} + {c}) & {mask}", "wide": "({A} * {B} + {c}) & {mask}"},
    "and": "{a} & {b}",
    "or": "{a} | {b}",
    "xor": "{a} ^ {b}",
    "not": "{a} ^ {mask}",
    "neg": "-{a} & {mask}",
    "shl": "({a} << min({b}, {bits})) & {mask}",
    "shr": "({A} >> min({b}, {bits})) & {mask}",
    "min": "min({A}, {B}) & {mask}",
    "max": "max({A}, {B}) & {mask}",
    "div": "divide({A}, {B}) & {mask}",
    "rem": "remainder({A}, {B}) & {mask}",
    "popc": "({a}).bit_count()",
    "clz": "{bits} - ({a}).bit_length()",
    "brev": "int(format({a}, '0{bits}b')[::-1], 2)",
}
