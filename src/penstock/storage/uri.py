"""From a URI to a storage."""

from __future__ import annotations

import os
import re
from urllib.parse import unquote, urlsplit

from penstock.errors import StorageError
from penstock.storage.local import LocalStorage
from penstock.storage.protocol import Storage

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


def open_storage(uri: str | os.PathLike[str]) -> Storage:
    """The storage behind a plain path, `file:///folder` or `s3://bucket/prefix?endpoint=…&region=…`.

    Nothing is read or written yet: a missing folder is made by the first write, a missing bucket is an error at the first use.
    """
    text = os.fspath(uri)
    if not text:
        raise StorageError("The storage URI is empty", hint="name a folder, or s3://bucket/prefix")
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else ""
    if scheme == "":
        return _folder(os.path.expanduser(text))
    if scheme == "file":
        return _folder(_file_path(text))
    if scheme in ("s3", "s3a"):
        # Loading obstore takes a while, which a local job need not pay for.
        from penstock.storage.object_store import S3Storage

        return S3Storage.parse(text)
    raise StorageError(
        f"The storage {text} has a scheme that Penstock does not know: {scheme}",
        hint="use a local folder, file:///folder or s3://bucket/prefix",
    )


def open_named(uri: str, by: Storage) -> Storage:
    """The storage that a file in another one, `by`, names.

    Requests carry the operator's credentials: so it is one on this machine, or at an endpoint that the operator has named.
    """
    storage = open_storage(uri)
    if not isinstance(storage, LocalStorage) and _endpoint(storage) != _endpoint(by) and _endpoint(storage) != _endpoint_here():
        raise StorageError(
            f"{by.uri} names a storage at another endpoint, which is not contacted: {uri}",
            hint="if it is yours, set AWS_ENDPOINT_URL_S3 to that endpoint",
        )
    return storage


def _endpoint(storage: Storage) -> str | None:
    return getattr(storage, "endpoint", None)


def _endpoint_here() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")


def _folder(path: str) -> LocalStorage:
    """A folder, there or not yet. What is a file, or is below one, can never be it."""
    storage = LocalStorage(path)
    place = storage.root
    while not os.path.isdir(place):
        if os.path.lexists(place) and not os.path.isdir(place):  # another process may have just made it
            raise StorageError(
                f"the storage {path} cannot be a folder: {place} is a file",
                hint="name a folder that exists or can be made, or s3://bucket/prefix",
            )
        place = os.path.dirname(place)
    return storage


def _file_path(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise StorageError(
            f"The storage {uri} is not a path on this machine", hint="write file:///absolute/path, with three slashes"
        )
    return unquote(parts.path, errors="surrogateescape")
