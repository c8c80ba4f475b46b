"""What is said once per process, and the one message for a missing torch."""

from __future__ import annotations

import logging
from importlib.util import find_spec

from tiering.errors import CapabilityError

log = logging.getLogger("tiering.loader")
_told: set[str] = set()


def warn_once(message: str) -> None:
    """Log a warning the first time, later only for debugging: the hundredth loader has nothing new to tell."""
    log.log(logging.DEBUG if message in _told else logging.WARNING, message)
    _told.add(message)


def require_torch() -> None:
    """Raise a `CapabilityError` that says how to get torch, if it cannot be imported. Does not import it."""
    try:
        missing = find_spec("torch") is None
    except ValueError:  # an entry of sys.modules that is None or half imported
        missing = True
    if missing:
        raise CapabilityError(
            "tensors need torch, which is not installed: pip install 'tiering[torch]' (any torch of at least 2.1), "
            "or read rows without it through gather_numpy"
        )
