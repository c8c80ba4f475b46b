"""The door to the C++ core: the only module that imports ``tiering._native``; it has the names of the core.

They take and return numpy arrays, release the GIL, and raise `RefusedError` (a failed system call: ``OSError``) with
the argument's name. Signatures: ``tiering/_native.pyi``, which the build makes; meaning: ``ext/include/tiering``.
"""

from __future__ import annotations

from tiering.errors import CapabilityError

try:
    from tiering._native import *  # noqa: F403
except ImportError as error:
    raise CapabilityError(
        f"the compiled core tiering._native cannot be loaded ({error}). Build it in the source directory "
        "with `pip install --no-build-isolation -e .`, or install a wheel"
    ) from error
