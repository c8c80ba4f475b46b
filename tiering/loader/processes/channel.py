"""A connection between two processes of one machine: messages of a JSON object and bytes, over a Unix socket."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

_CHECK_SECONDS = 1.0  # seconds after which a wait checks that the other end is alive


class Channel:
    """One end of a connection. Several threads may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._sending = connection, threading.Lock()
        self._messages = Connection(os.dup(connection.fileno()))

    @property
    def peer(self) -> int:
        """Process id of the other end, as the kernel knows it."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[0])

    def send(self, header: dict[str, Any], payload: bytes | memoryview = b"") -> None:
        """Send a message; `OSError` if the other end is gone."""
        with self._sending:
            self._messages.send_bytes(json.dumps(header).encode())
            self._messages.send_bytes(payload)

    def send_if_open(self, header: dict[str, Any]) -> None:
        """Send a message, unless the other end is gone."""
        with suppress(OSError):
            self.send(header)

    def receive(self, check: Callable[[], None]) -> tuple[dict[str, Any], bytes]:
        """Return the next message; `EOFError` if the other end is gone. `check`, called each second, may raise."""
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        while not poll.poll(_CHECK_SECONDS * 1000):
            check()
        try:
            return json.loads(self._messages.recv_bytes()), self._messages.recv_bytes()
        except OSError as error:
            raise EOFError from error

    def shut(self, how: int = socket.SHUT_RDWR) -> None:
        """End all waits of both ends, in any thread."""
        with suppress(OSError):
            self._socket.shutdown(how)

    def close(self) -> None:
        """Close the descriptors; the channel cannot be used any more."""
        self._messages.close()
        self._socket.close()
