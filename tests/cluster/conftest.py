"""Stores to test: a directory, and a bucket of a server on this machine."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from s3_keys import KEYS


@pytest.fixture(scope="module")
def s3_of_module() -> Iterator[Any]:
    for name in ("obstore", "botocore", "moto", "flask_cors"):
        pytest.importorskip(name, reason=f"a store in S3 is tested with {name}: pip install 'tiering[test]'")
    from s3_server import S3Server

    server = S3Server()
    yield server
    server.close()


@pytest.fixture
def s3(s3_of_module: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server without faults, which the environment leads to."""
    from s3_server import Faults

    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    nowhere = {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, "NO_PROXY": "127.0.0.1"}
    told = {"AWS_ENDPOINT_URL": s3_of_module.url, "AWS_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true"}
    for name, value in {**KEYS, **nowhere, **told}.items():
        monkeypatch.setenv(name, value)
    s3_of_module.faults = Faults()
    s3_of_module.requests.clear()
    return s3_of_module


@pytest.fixture
def s3_url(s3: Any) -> str:
    """A prefix of a bucket that no other test uses."""
    return f"s3://bucket/some/{uuid.uuid4().hex}"
