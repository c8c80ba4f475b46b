"""What a GPU of compute capability 9.0 executes, as text: ptxas may order, merge and spill what PTX tests have run."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

DRIVES = ("drive_rows", "copy_drive_rows")


def find_disassembler() -> str | None:
    """``nvdisasm``: on PATH, or of the package nvidia-cuda-nvdisasm."""
    import nvidia  # a namespace of packages

    found = (path for root in nvidia.__path__ for path in Path(root).glob("*/bin/nvdisasm"))
    return shutil.which("nvdisasm") or next(map(str, found), None)


@pytest.fixture(scope="module")
def sass(nvcc: list[str], repository: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Instructions of each kernel of the sources without CUB, without their addresses."""
    pytest.importorskip("nvidia", reason="no nvdisasm: pip install nvidia-cuda-nvdisasm, or tiering[test-all]")
    if (disassembler := find_disassembler()) is None:
        pytest.skip("no nvdisasm: pip install nvidia-cuda-nvdisasm, or tiering[test-all]")
    found: dict[str, list[str]] = {}
    includes = [f"-I{repository / 'ext' / part}" for part in ("include", "cuda/include")]
    for name in ("drive_rows", "gather_rows", "row_requests"):
        cubin = tmp_path_factory.mktemp("sass") / f"{name}.cubin"
        source = repository / "ext" / "cuda" / "src" / f"{name}.cu"
        command = [option for option in nvcc if option != "-ptx"]
        subprocess.run([*command, "-cubin", *includes, str(source), "-o", str(cubin)], check=True)
        text = subprocess.run([disassembler, "-c", str(cubin)], check=True, capture_output=True, text=True).stdout
        for part in text.split(".section\t.text.")[1:]:
            kernel = re.match(r"\w+", part)
            assert kernel is not None
            found[kernel[0]] = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(.*?)\s*;", part, re.MULTILINE)
    return found


def kernel_of(sass: dict[str, list[str]], name: str) -> list[str]:
    """The instructions of a kernel by the name that it has in C++."""
    (found,) = (lines for symbol, lines in sass.items() if f"{len(name)}{name}" in symbol)
    return found


def operations(lines: list[str]) -> list[str]:
    """Names of instructions, without their guards."""
    return [re.sub(r"^@!?U?P\d+\s+", "", line).split()[0] for line in lines]


def most_loads_in_flight(lines: list[str], load: str, store: str) -> int:
    """Most loads that follow each other without a store or a branch between them."""
    most = here = 0
    for name in operations(lines):
        if name.startswith(load):
            here += 1
        elif name.startswith((store, "BRA", "WARPSYNC", "BSYNC")):
            here = 0
        most = max(most, here)
    return most


def test_nothing_spills(sass: dict[str, list[str]]) -> None:
    for symbol, lines in sass.items():
        assert not [name for name in operations(lines) if name.startswith(("LDL", "STL"))], symbol


def test_commands_are_visible_before_doorbells(sass: dict[str, list[str]]) -> None:
    """A fence of the system stands before each store to a doorbell, and no store of a command between them."""
    names = operations(kernel_of(sass, "drive_rows_kernel"))
    bells = [i for i, name in enumerate(names) if ".MMIO" in name]
    assert len(bells) == 2
    for bell in bells:
        fence = max(i for i, name in enumerate(names[:bell]) if name.startswith("MEMBAR") and name.endswith(".SYS"))
        assert not [name for name in names[fence:bell] if name.startswith(("STG", "ST."))]


def test_completions_are_acquired(sass: dict[str, list[str]]) -> None:
    """A strong load of the system, behind which the multiprocessor's cache is emptied before anything is loaded."""
    names = operations(kernel_of(sass, "drive_rows_kernel"))
    acquired = [i for i, name in enumerate(names) if name.startswith("LD") and "STRONG.SYS" in name]
    assert len(acquired) == 2  # completions, the host's stop word
    for at in acquired:
        following = next(name for name in names[at + 1 :] if name.startswith(("LD", "CCTL")))
        assert following == "CCTL.IVALL"


@pytest.mark.parametrize("name", DRIVES)
def test_pages_are_loaded_together_past_the_cache(sass: dict[str, list[str]], name: str) -> None:
    lines = kernel_of(sass, f"{name}_kernel")
    for width in (".128", "", ".U8"):
        assert most_loads_in_flight(lines, f"LDG.E{width}.STRONG.GPU", "STG") >= 8


@pytest.mark.parametrize("name", DRIVES)
def test_geometry_takes_no_division(sass: dict[str, list[str]], name: str) -> None:
    """A division of 64 bits is a call, or begins with a reciprocal, I2F.U64; long rows take some of 32 bits."""
    names = operations(kernel_of(sass, f"{name}_kernel"))
    assert "CALL" not in " ".join(names) and not [name for name in names if name.startswith("I2F.U64")]
    assert len([name for name in names if name.startswith("I2F")]) <= 6


def test_gathers_keep_four_loads_in_flight(sass: dict[str, list[str]]) -> None:
    gathers = [lines for symbol, lines in sass.items() if "6gatherINS0_4Word" in symbol]
    assert len(gathers) == 5
    for lines in gathers:  # each load has a branch of its own, with a hint for caches and without
        accesses = "".join(name[0] for name in operations(lines) if name.startswith(("LDG", "STG")))
        assert "L" * 8 + "SSSS" in accesses
