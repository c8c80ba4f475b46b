"""A simulated S3 on this machine, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

from tiering.artifacts.remote import RemoteFolder

REGION = "us-east-1"


class ObjectStore:
    """A server of moto's that answers at `address`, until it is stopped; `settings`: its environment."""

    def __init__(self, **settings: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.address = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "moto.server", "-p", str(self.port)]
        self._server = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **settings}
        )
        end = time.monotonic() + 120
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self._server.poll() is not None or time.monotonic() > end:
                self.stop()
                raise RuntimeError(f"moto's server does not answer at {self.address}")
            time.sleep(0.05)

    def environment(self) -> dict[str, str]:
        """Environment variables by which clients find the store."""
        return {
            "AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_REGION": REGION,
            "AWS_ENDPOINT_URL": self.address, "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip

    def make_bucket(self) -> str:
        """Make an empty bucket; return its URL. The environment is the store's."""
        name = f"bucket-{uuid4().hex[:12]}"
        self.file_system().create_dir(name)
        return f"s3://{name}"

    def file_system(self) -> Any:
        """A client that may make buckets: of pyarrow's."""
        from pyarrow.fs import S3FileSystem

        return S3FileSystem(allow_bucket_creation=True, region=REGION, endpoint_override=self.address)

    def stop(self) -> None:
        """Kill the server."""
        self._server.kill()
        self._server.wait()


def upload(path: Path, url: str) -> str:
    """Copy a local file, or all files of a directory, below a URL; return what stands for it there."""
    folder, files = RemoteFolder(url), [path] if path.is_file() else sorted(path.rglob("*"))
    for file in filter(Path.is_file, files):
        folder.write(str(file.relative_to(path.parent)), [file.read_bytes()])
    return folder.join(path.name)
