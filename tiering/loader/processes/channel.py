"""Messages between two processes of one machine: a JSON object and bytes, over a Unix socket."""

from __future__ import annotations

import json
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_SIZES = struct.Struct("<II")
_CHECK_SECONDS = 1.0
"""How often a wait looks whether it still makes sense."""


class Channel:
    """One end of a connection. Several threads may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._sending = connection, threading.Lock()

    @classmethod
    def to(cls, address: str) -> Channel:
        """Connect to who listens at an abstract address."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.connect(f"\0{address}")
        except BaseException:
            connection.close()
            raise
        return cls(connection)

    @property
    def peer(self) -> int:
        """Process id of the other end, by the kernel's word."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])

    def send(self, header: dict[str, Any], payload: bytes | memoryview = b"", descriptor: int | None = None) -> None:
        """Send a message, and a descriptor for `receive_descriptor`; `OSError` if the other end is gone."""
        text = json.dumps(header).encode()
        with self._sending:
            self._socket.sendall(_SIZES.pack(len(text), len(payload)) + text)
            if payload:
                self._socket.sendall(payload)
            if descriptor is not None:
                socket.send_fds(self._socket, [b"d"], [descriptor])

    def receive(self, check: Callable[[], None]) -> tuple[dict[str, Any], bytes]:
        """The next message; `EOFError` if the other end is gone. `check` is called now and then, and may raise."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not poll.poll(_CHECK_SECONDS * 1000):
            check()
        try:
            text, payload = _SIZES.unpack(self._exactly(_SIZES.size))
            return json.loads(self._exactly(text)), self._exactly(payload)
        except ConnectionError as error:
            raise EOFError from error

    def receive_descriptor(self) -> int:
        """The descriptor that came with the message before."""
        mark, descriptors, *_ = socket.recv_fds(self._socket, 1, 1)
        if not mark or not descriptors:
            raise EOFError
        return descriptors[0]

    def shut(self, how: int = socket.SHUT_RDWR) -> None:
        """End what either side waits for, in any thread."""
        with suppress(OSError):
            self._socket.shutdown(how)

    def close(self) -> None:
        """Give the descriptor back; nobody may use the channel any more."""
        self._socket.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray(count)
        view = memoryview(data)
        while view:
            got = self._socket.recv_into(view)
            if not got:
                raise EOFError
            view = view[got:]
        return bytes(data)


def listen() -> tuple[socket.socket, str]:
    """A socket that waits for connections, and its address, which is nowhere in the file system."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("")  # the kernel picks an abstract address that nobody has
    listener.listen(128)
    name = listener.getsockname()
    return listener, (name.decode() if isinstance(name, bytes) else name).lstrip("\0")
