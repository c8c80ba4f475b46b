"""Whatever the user's files are: an import ends in a sound graph or in one line that says what is wrong with which."""

from __future__ import annotations

import random
import re
import zlib
from pathlib import Path

import pytest
from campaign import Campaign
from cases import Case
from crash_injection import CrashInjection, clear
from malformed import CASES, SOME_CASES
from small_inputs import EDGES_ARE_IN, SMALL_INPUTS, text_of_edges

import tiering

Answer = dict[str, object]
OPTIONS = (
    (), (), (), (), ("--edge-ids",), ("--memory", "200MiB"), ("--dry-run",), ("--compact-ids",), ("--deduplicate",),
    ("--reverse-edges",), ("--self-loops", "add"), ("--split", "0.5,0.2,0.1"), ("--num-nodes", "9"),
)  # fmt: skip
PIECES = (b"\0", b"\xff" * 8, b"9" * 30, b"-", b"\n", b"\r", b'"', b",", b"#", b"1e3", b"nan", b"\xff\xff\xff\x7f")


def complaint(answer: Answer, out: Path) -> str | None:
    """What is wrong with how an import ended that made no graph."""
    told = [line for line in str(answer["err"]).splitlines() if not line.startswith("note: ")]
    if answer["code"] != 1:
        return f"exit code {answer['code']}"
    if len(told) != 1 or not told[0].startswith("error: ") or len(told[0]) > 1500:
        return "not one line of error"
    if re.search("Traceback|internal error|bug in tiering|Unable to allocate|out of memory", told[0]):
        return "no sentence of ours"
    left = [str(path) for path in out.rglob("*")]
    return f"left behind: {left}" if left else None


def run_case(crash_injection: CrashInjection, case: Case, folder: Path) -> str | None:
    """The complaint about a case, if there is one."""
    clear(folder / "out")
    clear(folder / "in")
    argv = case.make(folder / "in" / "data")
    answer = crash_injection.run("import", *argv, "--out", folder / "out" / "graph", variant="bounded")
    found = complaint(answer, folder / "out")
    missing = [word for word in case.words if word not in str(answer["err"])]
    if found is None and missing:
        found = f"not said: {missing}"
    return f"{case.name}: {found}: {str(answer['err'])[-600:]}" if found else None


def all_refused(crash_injection: CrashInjection, cases: list[Case], folder: Path) -> None:
    wrong = [found for case in cases if (found := run_case(crash_injection, case, folder))]
    assert not wrong, "\n".join(wrong)


def damage(luck: random.Random, data: bytes) -> bytes:
    """Flip a bit, cut, insert, remove, repeat or overwrite, once to three times."""
    for _ in range(luck.choice((1, 1, 1, 2, 3))):
        at, end = sorted((luck.randint(0, len(data)), luck.randint(0, len(data))))
        near = min(len(data), at + luck.randint(1, 8))
        flipped = data[:at] + bytes([data[at] ^ 1 << luck.randrange(8)]) + data[at + 1 :] if at < len(data) else data
        written = data[:at] + luck.randbytes(near - at) + data[near:]
        data = luck.choice((
            *[flipped] * 4, written, written,
            data[:at],
            data[:at] + luck.choice(PIECES) + data[at:],
            data[:at] + data[near:],
            data[:at] + data[at:end] * 2 + data[end:],
            data[:at] + luck.choice(PIECES) + data[near:],
        ))  # fmt: skip
    return data


def damaged_import(crash_injection: CrashInjection, luck: random.Random, folder: Path) -> str:
    """Damage a file of a valid input and import it; return how that ended."""
    kind = luck.choice(list(SMALL_INPUTS))
    for name in ("in", "out"):
        clear(folder / name)
    source = SMALL_INPUTS[kind](folder / "in" / "data")
    tree = source if source.is_dir() else source.parent
    edges = tree / EDGES_ARE_IN[kind]
    victim = edges if luck.random() < 0.4 else luck.choice(sorted(path for path in tree.rglob("*") if path.is_file()))
    if kind == "csv.gz" and luck.random() < 0.5:
        victim.write_bytes(zlib.compress(damage(luck, text_of_edges().encode()), wbits=31))
    else:
        victim.write_bytes(damage(luck, victim.read_bytes()))
    out = folder / "out" / "graph"
    options = luck.choice(OPTIONS)
    answer = crash_injection.run("import", source, "--out", out, *options, variant="bounded")
    story = f"{kind} {options}: {victim.name}"
    if answer["code"] != 0:
        found = complaint(answer, folder / "out")
        assert not found, f"{story}: {found}: {str(answer['err'])[-600:]}"
        return "damaged and refused"
    assert not tiering.check(out, "full") if out.exists() else "--dry-run" in options, story
    return "damaged and imported"


@pytest.mark.slow
def test_malformed(crash_injection, folder):
    all_refused(crash_injection, SOME_CASES, folder)


@pytest.mark.slow
def test_damaged_somewhere(crash_injection, folder):
    luck = random.Random(1)
    for _ in range(40):
        damaged_import(crash_injection, luck, folder)


@pytest.mark.long
def test_imports(crash_injection, folder):
    def trial(luck: random.Random) -> str:
        if luck.random() < 0.5:
            return damaged_import(crash_injection, luck, folder)
        found = run_case(crash_injection, luck.choice(CASES), folder)
        assert not found, found
        return "malformed and refused"

    Campaign("imports").run(trial)
