"""The door to the C++ core: the only module that imports ``tiering._native``; its names are those of the core.

Everything takes and returns numpy arrays, releases the GIL, and gives the same bytes for any number of threads. The
functions check types, shapes and ranges and raise `tiering.errors.RefusedError` (a failed system call: ``OSError``)
with the argument's name; callers that know the file behind an argument add its path.

Signatures: ``tiering/_native.pyi``, which the build makes; meaning: ``ext/include/tiering``.
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
