"""The identity of the machine, by which processes know whom they share memory with, and disks have names."""

from __future__ import annotations

import socket
from pathlib import Path


def boot_id() -> str:
    """Return the id that the kernel made when it started; empty where a sandbox hides it.

    Machines differ in it even if one image gave them one host name. Only clones of a running machine share it.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def machine_id() -> str:
    """Return the id of the machine, or container, whose processes reach each other's memory and sockets.

    Processes of one kernel and host name reach each other through ``/proc`` within one PID namespace, and through
    abstract sockets within one network namespace.
    """
    namespaces = (str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("pid", "net"))
    return " ".join((boot_id(), socket.gethostname(), *namespaces))
