"""Whether PyG can be imported."""

from __future__ import annotations

from importlib.util import find_spec

from tiering.errors import CapabilityError


def require_pyg() -> None:
    """Raise a `CapabilityError` that says how to get PyG, if it cannot be imported. Does not import it."""
    if find_spec("torch_geometric") is None:
        raise CapabilityError(
            "batches for PyG need torch_geometric, which is not installed: pip install 'tiering[pyg]' (2.5 or later; "
            "pyg-lib is not needed)"
        )
