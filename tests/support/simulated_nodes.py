"""Machines simulated on this one by namespaces: host name, processes, network and a drive of their own."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

ADDRESS = "10.77.0.{}"
LINK = "link0"


class Node:
    """A machine whose `drive` lies at the path `mount`, which all machines have.

    Its processes end with it, as those of a machine that loses power do; `unplug` cuts the network alone.
    """

    def __init__(self, number: int, drive: Path, mount: Path) -> None:
        self.number, self.address = number, ADDRESS.format(number + 1)
        setup = f"hostname node{number} && ip link set lo up && mount --bind {drive} {mount} && echo ready"
        own = ["--uts", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        self._shell = subprocess.Popen(
            ["unshare", *own, "sh", "-c", f"{setup} && exec sleep infinity"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._shell.stdout is not None
        if self._shell.stdout.readline() != "ready\n":
            pytest.skip(f"no machine can be simulated here: {self._shell.communicate()[1].strip()}")
        children = Path(f"/proc/{self._shell.pid}/task/{self._shell.pid}/children")
        self.pid = int(children.read_text())
        self._programs: list[subprocess.Popen[str]] = []

    def start(self, *command: Any, out: Path | None = None, **variables: str) -> subprocess.Popen[str]:
        """Start a program on this machine; what it says goes to a file."""
        enter = ["nsenter", "--target", str(self.pid), "--uts", "--net", "--mount", "--pid"]
        with (out or Path(os.devnull)).open("w") as file:
            program = subprocess.Popen(
                [*enter, *map(str, command)], stdout=file, stderr=file, text=True, env={**os.environ, **variables}
            )
        self._programs.append(program)
        return program

    def run(self, *command: Any) -> None:
        assert self.start(*command).wait(60) == 0, command

    def train(self, nodes: int, program: Path, *arguments: Any, out: Path, processes: int = 2) -> Any:
        """Start processes of a program by torchrun, as one of so many machines; they meet at the first."""
        launch = [sys.executable, "-m", "torch.distributed.run", "--nnodes", nodes, "--node-rank", self.number]
        launch += ["--nproc-per-node", processes, "--master-addr", ADDRESS.format(1), "--master-port", 29500]
        return self.start(*launch, program, *arguments, out=out, GLOO_SOCKET_IFNAME=LINK, OMP_NUM_THREADS="1")

    def unplug(self) -> None:
        """Cut the network: nobody is told."""
        self.run("ip", "link", "set", LINK, "down")

    def kill(self) -> None:
        """End the machine with all of its processes."""
        if self._shell.poll() is None:
            os.kill(self.pid, signal.SIGKILL)
        self._shell.communicate()
        for program in self._programs:
            program.wait(60)


@contextmanager
def simulated_nodes(drives: list[Path], mount: Path) -> Iterator[list[Node]]:
    """Machines with these drives, in one network; skips where they cannot be made."""
    if os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        pytest.skip("simulating machines needs root, unshare, nsenter and ip")
    nodes: list[Node] = []
    try:
        for number, drive in enumerate(drives):
            nodes.append(Node(number, drive, mount))
        ends = [["name", LINK, "netns", str(node.pid)] for node in nodes]
        add = ["ip", "link", "add", *ends[0], "type", "veth", "peer", *ends[1]]
        link = subprocess.run(add, capture_output=True, text=True, check=False)
        if link.returncode:
            pytest.skip(f"no link between simulated machines can be made here: {link.stderr.strip()}")
        for node in nodes:
            node.run("ip", "addr", "add", f"{node.address}/24", "dev", LINK)
            node.run("ip", "link", "set", LINK, "up")
        yield nodes
    finally:
        for node in nodes:
            node.kill()
