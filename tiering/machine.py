"""The identity of the machine, for processes that share its memory and for caches of its disks' figures."""

from __future__ import annotations

import socket
from pathlib import Path


def boot_id() -> str:
    """Return the id of this start of the kernel, which only clones of a running machine share; empty if hidden."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def machine_id() -> str:
    """Return the id of the machine, or container, whose processes reach each other's memory and sockets.

    Processes of one kernel and host name do so within a PID namespace (``/proc``) and a network namespace (sockets).
    """
    namespaces = (str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "net"))
    return " ".join((boot_id(), socket.gethostname(), *namespaces))
