"""Whether PyG and DGL are there, of a version that serves, and can be imported."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from tiering.errors import CapabilityError


def require_pyg() -> None:
    """Import PyG; `CapabilityError` says how to get it, or one that serves."""
    _require("PyG", "torch_geometric", (2, 5), "pyg")


def require_dgl() -> None:
    """Import DGL; `CapabilityError` says how to get it, or one that serves."""
    _require("DGL", "dgl", (1, 1, 3), "dgl")


def _require(name: str, package: str, least: tuple[int, ...], extra: str) -> None:
    expected = f"{package} {'.'.join(map(str, least))} or later: pip install 'tiering[{extra}]'"
    try:
        installed = version(package)
    except PackageNotFoundError:
        raise CapabilityError(f"batches for {name}: expected {expected}; it is not installed") from None
    if tuple(map(int, re.findall(r"\d+", installed)[: len(least)])) < least:
        raise CapabilityError(f"batches for {name}: expected {expected}; found {installed}")
    try:
        import_module(package)
    except Exception as error:  # such as a library for another torch
        raise CapabilityError(
            f"batches for {name}: {package} {installed} is installed, but cannot be imported ({error}); is it for this "
            "version of torch?"
        ) from error
