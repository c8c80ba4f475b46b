"""Device code uses no function of the C++ standard library: nvcc accepts constexpr ones and compiles some to nothing,
without a warning (std::advance, and so std::upper_bound). The simulated device can't show that. Types are allowed.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

EXT = Path(__file__).parents[1] / "ext"
TYPES = {"byte", "initializer_list", "numeric_limits"}
HEADERS = {"cstddef", "cstdint", "initializer_list", "limits"}
MARKER = re.compile(r"__global__|__device__|\bTIERING_DEVICE\b|\bTIERING_BOTH\b|(?<!if )\bconstexpr\b")


def strip_comments(text: str) -> str:
    """Return C++ code without comments and preprocessor directives."""
    code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
    return re.sub(r"^ *#(.*\\\n)*.*", "", code, flags=re.MULTILINE)


def std_functions(code: str) -> set[str]:
    return set(re.findall(r"\bstd::(\w+)", code) + re.findall("using namespace std", code)) - TYPES


def device_functions(source: str) -> str:
    """Return the functions of a source that run on the device, from their markers to their closing braces."""
    code, functions, end = strip_comments(source), [], 0
    for marker in MARKER.finditer(code):
        if marker.start() < end:
            continue
        depth, body = 0, False
        for end in range(marker.end(), len(code)):
            depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(code[end], 0)
            body |= code[end] == "{" and depth == 1
            if depth == 0 and code[end] == ("}" if body else ";"):
                break
        functions.append(code[marker.start() : end + 1])
    return "\n".join(functions)


def shared_headers() -> list[Path]:
    """Return the headers of arithmetic that host and device share, with all that they include."""
    headers = sorted((EXT / "include/tiering/device").glob("*.hpp"))
    for header in headers:  # grows meanwhile
        for name in re.findall(r'#include ["<](tiering/[^">]+)', header.read_text()):
            if EXT / "include" / name not in headers:
                headers.append(EXT / "include" / name)
    return headers


def test_shared_headers():
    headers = shared_headers()
    assert EXT / "include/tiering/sampling/random.hpp" in headers
    for header in headers:
        text = header.read_text()
        assert not std_functions(strip_comments(text)), header
        assert set(re.findall(r"#include <([^/>]+)>", text)) <= HEADERS, header


def test_kernels():
    sources = [path for path in sorted((EXT / "cuda").rglob("*")) if path.suffix in (".cu", ".cuh", ".hpp")]
    kernels = {path: device_functions(path.read_text()) for path in sources}
    assert "__global__ void reach_drawn" in "".join(kernels.values())
    for path, code in kernels.items():
        assert not std_functions(code), path


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("constexpr int f(int* a) { return std::upper_bound(a, a + 3, 1) - a; }", {"upper_bound"}),
        ("template <typename T>\n__global__ void f(T x = {}) {\n if (x) { g(); }\n y = std::min<T>(x, 1);\n}", {"min"}),
        ("TIERING_DEVICE int f() const { return h([&] { return std::move(1); }); }", {"move"}),
        ("constexpr int f() { using namespace std; return max(1, 2); }", {"using namespace std"}),
        ("int f() { return std::max(1, 2); }  // constexpr\nconstexpr int k = 2;\nint g() { std::sort(a, b); }", set()),
        ("constexpr std::byte f() { return std::byte{std::numeric_limits<int>::max() > 0}; }", set()),
        ("template <typename T> void f() { if constexpr (sizeof(T) == 4) std::swap(a, b); }", set()),
    ],
)
def test_device_functions(source, found):
    assert std_functions(device_functions(source)) == found
