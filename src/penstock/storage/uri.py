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
        return LocalStorage(os.path.expanduser(text))
    if scheme == "file":
        return LocalStorage(_file_path(text))
    if scheme in ("s3", "s3a"):
        # Loading obstore takes a while, which a local job need not pay for.
        from penstock.storage.object_store import S3Storage

        return S3Storage.parse(text)
    raise StorageError(
        f"The storage {text} has a scheme that Penstock does not know: {scheme}",
        hint="use a local folder, file:///folder or s3://bucket/prefix",
    )


def _file_path(uri: str) -> str:
    parts = urlsplit(uri)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/") or parts.query or parts.fragment:
        raise StorageError(
            f"The storage {uri} is not a path on this machine", hint="write file:///absolute/path, with three slashes"
        )
    return unquote(parts.path)
