"""What only a store in a bucket does: its requests, faults of the server, URLs and credentials."""

from __future__ import annotations

import errno
import os
import pickle
import shutil
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from s3_keys import KEYS

from tiering.cluster.stores import Store, open_store
from tiering.errors import InputError, MissingError, StorageError

pytest.importorskip("obstore", reason="a store in S3 needs obstore: pip install 'tiering[s3]'")
pytest.importorskip("botocore", reason="a store in S3 needs botocore: pip install 'tiering[s3]'")

from tiering.cluster.stores import s3 as module
from tiering.cluster.stores.s3 import S3Store

MIB = 1 << 20


@pytest.fixture
def store(s3_url: str) -> S3Store:
    return S3Store(s3_url, part_bytes=5 * MIB)


def prefix(store: Store) -> str:
    return store.url.removeprefix("s3://bucket/")


def put(store: S3Store, key: str, data: bytes) -> None:
    with store.writer(key, len(data)) as out:
        out.write(np.frombuffer(data, np.uint8))


def parts(s3: Any) -> int:
    return sum("partNumber=" in request for request in s3.requests)


def test_small_objects_take_one_request_and_large_ones_parts(s3: Any, store: S3Store) -> None:
    put(store, "small", b"x" * 1000)
    store.read("small")
    assert [request.partition(" ")[0] for request in s3.requests] == ["PUT", "GET"]
    put(store, "large", bytes(12 * MIB))
    assert parts(s3) == 3
    s3.requests.clear()
    store.read("large")
    assert len(s3.requests) == 3


def test_parts_grow_with_the_object(s3: Any, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_PARTS", 2)
    put(store, "large", bytes(12 * MIB))
    assert parts(s3) == 2
    assert store.size("large") == 12 * MIB


def test_an_error_aborts_the_upload(s3: Any, store: S3Store) -> None:
    with pytest.raises(KeyError), store.writer("aborted", 11 * MIB) as out:
        out.write(np.ones(11 * MIB, np.uint8))
        out.write(np.ones(1, np.uint8))
        assert s3.uploads(prefix(store)) == [f"{prefix(store)}/aborted"]
        raise KeyError
    assert s3.uploads(prefix(store)) == []
    assert s3.objects(prefix(store)) == []


def test_a_part_that_fails_for_good_aborts_the_upload(s3: Any, s3_url: str) -> None:
    store = S3Store(s3_url, part_bytes=5 * MIB, retries=1)
    s3.faults.refused_parts = {"1"}
    with pytest.raises(StorageError, match="lost: the server answered 503"), store.writer("lost", 60 * MIB) as out:
        for _ in range(12):
            out.write(np.ones(5 * MIB, np.uint8))
    assert s3.uploads(prefix(store)) == []
    assert store.size("lost") is None


def test_an_upload_that_cannot_end_is_aborted(s3: Any, store: S3Store) -> None:
    s3.faults.refuses_ends = True
    with pytest.raises(StorageError, match="large: the server answered 403"):
        put(store, "large", bytes(11 * MIB))
    assert s3.uploads(prefix(store)) == []
    assert store.size("large") is None


def work(store: S3Store) -> None:
    """Each kind of request, several times."""
    data = np.random.default_rng(2).bytes(11 * MIB)
    put(store, "job/large", data)
    put(store, "job/small", b"small")
    for race in range(2):
        assert store.claim(f"job/claim-{race}", b"own") == b"own"
        assert store.claim(f"job/claim-{race}", b"other") == b"own"
    assert store.read("job/large").tobytes() == data
    assert store.size("job/small") == 5
    store.remove("job/small")
    store.clear("job")
    assert store.size("job/large") is None


def test_an_overloaded_server_is_asked_again(s3: Any, s3_url: str) -> None:
    s3.faults.slow_every = 3
    work(S3Store(s3_url, part_bytes=5 * MIB))
    with pytest.raises(StorageError, match=r"the server answered 503.*, after all retries; run the same"):
        work(S3Store(s3_url, part_bytes=5 * MIB, retries=0))


def test_an_answer_that_ends_early_is_asked_for_again(s3: Any, store: S3Store) -> None:
    data = np.random.default_rng(3).bytes(6 * MIB)
    put(store, "cut", data)
    s3.faults.cut_every = 2
    for _ in range(3):
        assert store.read("cut").tobytes() == data


def test_a_claim_whose_answer_was_lost_is_known_by_its_bytes(s3: Any, store: S3Store) -> None:
    assert store.claim("first", b"1") == b"1"
    s3.faults.lost_answers = 1
    assert store.claim("second", b"own") == b"own"
    assert store.claim("second", b"other") == b"own"


def test_a_claim_whose_answer_is_late_is_made_again(s3: Any, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    assert store.claim("first", b"1") == b"1"
    monkeypatch.setattr(module, "_TIMEOUT", timedelta(seconds=0.2))
    hasty = S3Store(f"{store.url}/hasty")
    s3.faults.late_answers = 1
    assert hasty.claim("second", b"own") == b"own"
    s3.faults.late_answers = 1
    with pytest.raises(StorageError, match=r"third: .*; check the endpoint"):
        S3Store(f"{store.url}/hasty", retries=0).claim("third", b"own")


def test_a_server_that_ignores_conditions_is_refused(s3: Any, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_proven", set())
    s3.faults.ignores_conditions = True
    for _ in range(2):
        with pytest.raises(StorageError, match="in spite of If-None-Match: \\*, which claims need") as caught:
            store.claim("job/claim", b"own")
        assert caught.value.errno == errno.EOPNOTSUPP
    assert s3.objects(prefix(store)) == []


def test_servers_are_tried_for_claims_once(s3: Any, store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_proven", set())
    store.claim("job/1", b"own")
    before = len(s3.requests)
    open_store(store.url).claim("job/2", b"own")
    assert len(s3.requests) == before + 1
    assert s3.objects(prefix(store)) == [f"{prefix(store)}/job/1", f"{prefix(store)}/job/2"]


def test_a_refusal_names_what_is_not_allowed(s3: Any, store: S3Store) -> None:
    s3.faults.forbids = True
    requests: list[Callable[[], Any]] = [
        lambda: store.size("job/1"), lambda: store.read("job/1"), lambda: put(store, "job/1", b"1"),
        lambda: store.claim("job/1", b""), lambda: store.remove("job/1"), lambda: store.clear("job/1"),
    ]  # fmt: skip
    for request in requests:
        with pytest.raises(StorageError, match=r"job/1.*: the server answered 403.*; credentials or policy") as caught:
            request()
        assert caught.value.errno == errno.EACCES


def test_a_bucket_that_is_not_there(s3: Any) -> None:
    store = S3Store("s3://no-such-bucket/prefix")
    for request in (lambda: store.read("job/1"), lambda: put(store, "job/1", b"1"), lambda: store.claim("job/1", b"")):
        with pytest.raises(StorageError, match="there is no such bucket") as caught:
            request()
        assert not isinstance(caught.value, MissingError)


def test_a_server_that_does_not_answer(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"some/.*/job: .*error sending request; check the endpoint"):
        S3Store(s3_url, retries=0).size("job")


def test_no_credentials(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name)
    with pytest.raises(StorageError, match="no credentials found; set AWS_ACCESS_KEY_ID"):
        S3Store("s3://bucket/without-credentials")


def test_credentials_and_endpoint_of_a_profile(s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*KEYS, "AWS_ENDPOINT_URL", "AWS_REGION"):
        monkeypatch.delenv(name)
    (tmp_path / "credentials").write_text("[tests]\naws_access_key_id = AKIA\naws_secret_access_key = secret\n")
    (tmp_path / "config").write_text(f"[profile tests]\nregion = eu-west-1\nendpoint_url = {s3.url}\n")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "tests")
    store = S3Store("s3://bucket/by-profile")
    put(store, "object", b"1")
    assert s3.objects("by-profile") == ["by-profile/object"]
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StorageError, match=r"s3://bucket/x: .*nobody"):
        S3Store("s3://bucket/x")


def test_credentials_are_shown_nowhere(s3: Any, store: S3Store) -> None:
    shown = [repr(store), str(store), store.url, repr(vars(store)), pickle.dumps(store).decode("latin-1")]
    s3.faults.forbids = True
    for request in (lambda: store.read("job/1"), lambda: store.claim("job/1", b"")):
        try:
            request()
        except StorageError as error:
            shown.append("".join(traceback.format_exception(error)))
    assert len(shown) == 7
    assert not [text for text in shown for secret in KEYS.values() if secret in text]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("s3://AKIA:hidden@bucket/prefix", "user info"),
        ("s3://AKIA:hid/den@bucket/prefix", "user info"),
        ("s3://AKIA@bucket", "user info"),
        ("s3://host:9000/bucket", "user info or a port"),
        ("s3://bucket/prefix?secret=hidden", "a query"),
        ("s3://bucket/prefix#hidden", "a query"),
        ("s3://", "bucket ''"),
        ("s3:///prefix", "bucket ''"),
        ("s3://buc ket/prefix", "bucket 'buc ket'"),
        ("s3://bucket/a//b", "found ''"),
        ("s3://bucket/a/../b", "found '..'"),
        ("s3://bucket/with space", "found 'with space'"),
    ],
)
def test_urls_that_are_refused(s3: Any, url: str, found: str) -> None:
    with pytest.raises(InputError, match=r"store: expected s3://bucket/prefix") as caught:
        open_store(url)
    assert found in str(caught.value)
    assert not any(secret in str(caught.value) for secret in ("AKIA", "hid"))


@pytest.mark.parametrize("endpoint", ["http://user:hidden@host", "https://host/?key=hidden", "ftp://hidden", "hidden"])
def test_endpoints_that_are_refused(s3: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", endpoint)
    with pytest.raises(InputError, match="AWS_ENDPOINT_URL") as caught:
        open_store("s3://bucket/prefix")
    assert "hidden" not in str(caught.value)


def test_a_forked_process_is_told(store: S3Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(StorageError, match="forked from one that uses S3"):
        store.size("job")


def test_a_command_by_tasks_through_a_bucket(
    s3: Any, s3_url: str, tiering_cli: Any, tiny_dataset: Path, tmp_path: Path
) -> None:
    def made(*more: str) -> dict[str, bytes]:
        tiering_cli("import", tiny_dataset, "--out", tmp_path / "graph", *more).ok()
        files = {file.name: file.read_bytes() for file in (tmp_path / "graph").rglob("*") if file.is_file()}
        shutil.rmtree(tmp_path / "graph")
        return files

    expected = made()
    s3.faults.slow_every = 20
    assert made("--executor", "local", "--workers", "2", "--shards", "2", "--store", s3_url) == expected
    assert len(s3.requests) > 40
    assert s3.objects(prefix(open_store(s3_url))) == []
