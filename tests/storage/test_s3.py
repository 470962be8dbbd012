"""The contract on a real S3 server on loopback: moto's, one request at a time, as its conditional put checks, then writes."""

from __future__ import annotations

import pickle
import socket
import threading
import uuid
from collections.abc import Iterator
from datetime import timedelta

import boto3
import obstore
import pytest
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

from penstock.errors import AlreadyExistsError, StorageError
from penstock.storage import Storage, object_store, open_storage
from penstock.storage.object_store import S3Storage
from tests.storage.contract import BIG, StorageContract, paths

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    application = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, application, threaded=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_REGION", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ALLOW_HTTP"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")


@pytest.fixture
def bucket(endpoint: str, credentials: None) -> str:
    name = f"penstock-{uuid.uuid4()}"
    boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=name)
    return name


@pytest.fixture
def storage(endpoint: str, bucket: str) -> Storage:
    return open_storage(f"s3://{bucket}/some/prefix?endpoint={endpoint}")


class TestS3Storage(StorageContract):
    pass


def test_the_endpoint_may_come_from_the_environment(endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    storage = open_storage(f"s3a://{bucket}")
    storage.create("a", b"1")
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    assert pickle.loads(pickle.dumps(storage)).read("a") == b"1"
    assert storage.uri == f"s3://{bucket}?endpoint={endpoint}&region=us-east-1"


def test_the_uri_wins_over_the_environment(endpoint: str, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    storage = open_storage(f"s3://{bucket}/x?endpoint={endpoint}")
    storage.create("a", b"1")
    assert storage.read("a") == b"1"


def test_credentials_do_not_travel(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    storage.exists("a")
    assert b"hush-hush" not in pickle.dumps(storage)
    assert "hush-hush" not in repr(storage) + storage.uri


def test_large_objects_are_created_exclusively_too(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "ONE_PUT_BYTES", 1 << 20)
    data = BIG * 3
    with storage.writer("base/1") as file:
        file.write(data)
    assert storage.read("base/1") == data
    with pytest.raises(AlreadyExistsError), storage.writer("base/1") as file:
        file.write(data + b"other")
    assert storage.size("base/1") == len(data)
    assert storage.sweep_temporary(timedelta(0)) == 0


def test_temporary_objects_are_hidden_and_swept(storage: Storage) -> None:
    assert isinstance(storage, S3Storage)
    storage.create("a/kept", b"")
    obstore.put(storage._store, "a/.tmp-1-abc", b"half")
    assert paths(storage) == ["a/kept"]
    assert storage.sweep_temporary(timedelta(hours=1)) == 0
    assert storage.sweep_temporary(timedelta(seconds=-5)) == 1
    assert [listed.path for listed in storage._all("")] == ["a/kept"]


def test_a_missing_bucket_is_named(endpoint: str) -> None:
    storage = open_storage(f"s3://no-such-bucket/x?endpoint={endpoint}")
    for attempt in (
        lambda: storage.create("a", b""),
        lambda: storage.read("a"),
        lambda: list(storage.list("")),
        lambda: storage.delete(["a"]),
    ):
        with pytest.raises(StorageError, match="There is no bucket no-such-bucket") as caught:
            attempt()
        assert type(caught.value) is StorageError


def test_an_unknown_outcome_is_a_storage_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        storage = open_storage(f"s3://bucket/x?endpoint=http://127.0.0.1:{taken.getsockname()[1]}")
        with pytest.raises(StorageError, match="gave no answer") as caught:
            storage.create("a", b"")
    assert not isinstance(caught.value, AlreadyExistsError)
    assert "Debug source" not in str(caught.value)


def test_a_server_that_answers_with_403(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(environ: object, start_response: object) -> list[bytes]:
        assert callable(start_response)
        start_response("403 Forbidden", [("Content-Type", "application/xml")])
        return [b"<?xml version='1.0'?><Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"]

    server = make_server("127.0.0.1", 0, forbidden)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        storage = open_storage(f"s3://bucket/x?endpoint=http://127.0.0.1:{server.server_port}")
        with pytest.raises(StorageError, match="Access Denied") as caught:
            storage.create("a", b"")
        assert "AWS_ACCESS_KEY_ID" in caught.value.hint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


ODD_KEYS = ("epochs//a.json", "/x.json", "epochs/./b.json", "epochs/../c.json", "epochs/sub//deep//d.json")


@pytest.mark.parametrize("prefix", ["some/prefix", ""])
def test_keys_that_are_no_paths_do_not_hide_the_others(endpoint: str, bucket: str, prefix: str) -> None:
    """A tool that joined paths carelessly has left them: the client library refuses the whole listing for one of them."""
    storage = open_storage(f"s3://{bucket}/{prefix}?endpoint={endpoint}")
    names = [f"epochs/{number:04}.json" for number in range(3)] + ["state/s1/p0/a.delta", "top.json"]
    for name in names:
        storage.create(name, b"12")
    before = list(storage.list())
    client = boto3.client("s3", endpoint_url=endpoint)
    for key in ODD_KEYS:
        client.put_object(Bucket=bucket, Key=f"{prefix}/{key}" if prefix else key, Body=b"{}")
    after = list(storage.list())
    assert [listed.path for listed in after] == names
    assert [listed.size for listed in after] == [2] * len(names)
    assert all(abs(one.modified_ms - other.modified_ms) < 1000 for one, other in zip(before, after, strict=True))
    assert [listed.path for listed in storage.list("epochs")] == names[:3]
    assert [listed.path for listed in storage.list("state")] == ["state/s1/p0/a.delta"]
    assert list(storage.list("nothing")) == []
    assert storage.sweep_temporary(timedelta(0)) == 0
    assert isinstance(storage, S3Storage)
    assert set(ODD_KEYS[1:2] if prefix else ODD_KEYS[:1]) <= set(storage.unlisted())
    assert client.list_objects_v2(Bucket=bucket)["KeyCount"] == len(names) + len(ODD_KEYS)
