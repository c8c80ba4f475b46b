"""The one message for a missing torch."""

from __future__ import annotations

from importlib.util import find_spec

from tiering.errors import CapabilityError


def require_torch() -> None:
    """Raise a `CapabilityError` that says how to get torch, if it cannot be imported. Does not import it."""
    try:
        found = find_spec("torch") is not None
    except ValueError:  # an entry of sys.modules that is None or half imported
        found = False
    if not found:
        raise CapabilityError(
            "tensors need torch, which is not installed: pip install 'tiering[torch]' (any torch of at least 2.1), "
            "or read rows without it through gather_numpy"
        )
