"""Storage in an S3 bucket (Amazon's, or another with conditional puts), through the `obstore` package.

Exclusive create is a put with `If-None-Match: *`. If its reply is lost, or a request that the client library repeated finds an
object, the object says whose it is. Credentials are not part of the storage and are never pickled: every process
finds its own in the environment (`AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, web identity, instance
metadata).
"""

from __future__ import annotations

import io
import os
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import IO, TYPE_CHECKING, BinaryIO, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import obstore
from obstore import exceptions
from obstore.store import S3Store

from penstock.errors import AlreadyExistsError, NotFoundError, StorageError
from penstock.storage.any_key import UNREADABLE, listed_with_any_key
from penstock.storage.protocol import TEMPORARY_PREFIX, Listed, checked, is_plain_path

if TYPE_CHECKING:
    from typing_extensions import Buffer

ONE_PUT_BYTES = 64 << 20
"""Larger objects are uploaded in parts under a temporary name and copied, on condition, inside the store: a put in parts knows no
condition, and a put in one piece must be in memory."""

_TRIES = 3
"""How often a request is made whose outcome is not known. The client library repeats those that it knows to be harmless."""

_MARK = "penstock-write"
"""Metadata of an object: which call of `create` has written it."""

_COMPARED_BYTES = 8 << 20
_READ_AHEAD_BYTES = 1 << 20
_PARAMETERS = ("endpoint", "region", "allow_http")
_FAILURES = (exceptions.BaseError, FileNotFoundError, ValueError)


@dataclass(frozen=True)
class S3Storage:
    """A prefix of a bucket as a storage."""

    bucket: str
    prefix: str = ""
    endpoint: str | None = None
    region: str | None = None
    allow_http: bool = False
    _opened: dict[int, S3Store] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The client, by process id: it does not survive a fork."""

    @staticmethod
    def parse(uri: str) -> S3Storage:
        parts = urlsplit(uri)
        given = dict(parse_qsl(parts.query, keep_blank_values=True))
        if unknown := sorted(set(given) - set(_PARAMETERS)):
            raise StorageError(
                f"The storage {uri} has parameters that Penstock does not know: {', '.join(unknown)}",
                hint=f"known ones are {', '.join(_PARAMETERS)}",
            )
        if "@" in parts.netloc:
            raise StorageError(
                f"The storage s3://{parts.netloc.rpartition('@')[2]} was given with credentials in its URI",
                hint="set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment instead",
            )
        if not parts.netloc:
            raise StorageError(f"The storage {uri} names no bucket", hint="write s3://bucket/prefix")
        prefix = unquote(parts.path).strip("/")
        endpoint = given.get("endpoint") or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
        allow_http = (given.get("allow_http") or os.environ.get("AWS_ALLOW_HTTP", "")).lower() in ("1", "true", "yes")
        if endpoint is not None and endpoint.startswith("http://") and not (allow_http or _is_loopback(endpoint)):
            raise StorageError(
                f"The endpoint {endpoint} of {uri} is reached without encryption",
                hint="use https://, or add allow_http=true to the URI if the network between is trusted",
            )
        return S3Storage(
            bucket=parts.netloc,
            prefix=checked(prefix) if prefix else "",
            endpoint=endpoint,
            region=given.get("region") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"),
            allow_http=allow_http or (endpoint is not None and _is_loopback(endpoint)),
        )

    @property
    def uri(self) -> str:
        given = {"endpoint": self.endpoint, "region": self.region}
        query = {name: value for name, value in given.items() if value is not None}
        if self.allow_http and self.endpoint is not None and not _is_loopback(self.endpoint):
            query["allow_http"] = "true"
        place = f"s3://{self.bucket}/{quote(self.prefix)}".rstrip("/")
        return f"{place}?{urlencode(query, safe=':/')}" if query else place

    def __reduce__(self) -> tuple[object, ...]:
        return (S3Storage, (self.bucket, self.prefix, self.endpoint, self.region, self.allow_http))

    def create(self, path: str, data: bytes, *, durable: bool = True) -> None:
        checked(path)
        mark = uuid.uuid4().hex
        self._create(
            path,
            lambda: obstore.put(self._store, path, data, mode="create", attributes={_MARK: mark}),
            lambda: self._mark_of(path) == mark,
        )

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        try:
            obstore.put(self._store, checked(path), data, use_multipart=False)
        except _FAILURES as error:
            raise self._problem("replace", path, error) from error

    @contextmanager
    def writer(self, path: str, *, durable: bool = True) -> Iterator[BinaryIO]:
        checked(path)
        with tempfile.TemporaryFile(prefix="penstock-upload-") as spool:
            # Nothing is sent before the block has ended well; and Arrow's writers close the file they are given.
            with open(spool.fileno(), "wb", buffering=1 << 18, closefd=False) as file:
                yield file
            size = os.fstat(spool.fileno()).st_size
            spool.seek(0)
            if size <= ONE_PUT_BYTES:
                self.create(path, spool.read())
            else:
                self._create_large(path, spool)

    def _create_large(self, path: str, spool: IO[bytes]) -> None:
        folder = path.rpartition("/")[0]
        temporary = f"{folder}/" if folder else ""
        temporary += f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(6).hex()}"
        try:
            self._upload(spool, temporary)
            self._create(
                path,
                lambda: obstore.copy(self._store, temporary, path, overwrite=False),
                lambda: self._holds(path, spool),  # a copy in parts carries no mark
            )
        except _FAILURES as error:
            raise self._problem("create", path, error) from error
        finally:
            with suppress(*_FAILURES):  # a later sweep finds it
                obstore.delete(self._store, [temporary])

    def _upload(self, spool: IO[bytes], temporary: str) -> None:
        """In parts. The reply that it is complete may be lost: it is done again, over what is there."""
        for left in reversed(range(_TRIES)):
            try:
                spool.seek(0)
                obstore.put(self._store, temporary, spool, use_multipart=True)
                return
            except exceptions.GenericError:
                if not left:
                    raise

    def _create(self, path: str, attempt: Callable[[], object], is_ours: Callable[[], bool]) -> None:
        """Create an object on the condition that there is none, and know the outcome, though replies may be lost.

        An object that is there already, or may be there, is looked at: our own may be told by what it says.
        """
        for left in reversed(range(_TRIES)):
            try:
                attempt()
                return
            except _FAILURES as error:
                problem = self._problem("create", path, error)
                if not isinstance(problem, AlreadyExistsError) and not isinstance(error, exceptions.GenericError):
                    raise problem from error
                try:
                    ours = is_ours()
                except FileNotFoundError:
                    if left and not isinstance(problem, AlreadyExistsError):
                        continue  # it has had no effect
                    raise problem from error
                except _FAILURES:
                    raise problem from error
                if ours:
                    return
                if isinstance(problem, AlreadyExistsError):
                    raise problem from error
                raise AlreadyExistsError(f"{self._place(path)} exists already") from error

    def _mark_of(self, path: str) -> str | None:
        """What the writer of an object has left with it."""
        return obstore.get(self._store, path, options={"head": True}).attributes.get(_MARK)

    def _holds(self, path: str, spool: IO[bytes]) -> bool:
        """Has an object the same content?"""
        size = obstore.head(self._store, path)["size"]
        if size != spool.seek(0, os.SEEK_END):
            return False
        spool.seek(0)
        for at in range(0, size, _COMPARED_BYTES):
            wanted = spool.read(_COMPARED_BYTES)
            if bytes(obstore.get_range(self._store, path, start=at, length=len(wanted))) != wanted:
                return False
        return True

    def read(self, path: str) -> bytes:
        try:
            return bytes(obstore.get(self._store, checked(path)).bytes())
        except _FAILURES as error:
            raise self._problem("read", path, error) from error

    def read_range(self, path: str, offset: int, length: int) -> bytes:
        if length <= 0:
            return b""
        try:
            return bytes(obstore.get_range(self._store, checked(path), start=offset, length=length))
        except _FAILURES as error:
            if "416 Range Not Satisfiable" in str(error):  # the object ends before the offset
                return b""
            raise self._problem("read", path, error) from error

    def open(self, path: str) -> BinaryIO:
        return cast(BinaryIO, io.BufferedReader(_Reader(self, path, self.size(path)), _READ_AHEAD_BYTES))

    def exists(self, path: str) -> bool:
        try:
            self.size(path)
        except NotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        try:
            return obstore.head(self._store, checked(path))["size"]
        except _FAILURES as error:
            raise self._problem("read", path, error) from error

    def list(self, prefix: str = "") -> Iterator[Listed]:
        prefix = prefix.rstrip("/")
        found = [listed for listed in self._all(prefix) if is_plain_path(listed.path)]
        found.sort(key=lambda listed: listed.path)
        return iter(found)

    def unlisted(self) -> Iterator[str]:
        """What is there under names that no path can have, for people."""
        return (listed.path for listed in self._all("") if not _is_temporary(listed.path) and not is_plain_path(listed.path))

    def delete(self, paths: Iterable[str]) -> None:
        names = [checked(path) for path in paths]
        if not names:
            return
        for left in reversed(range(_TRIES)):
            try:
                obstore.delete(self._store, names)
                return
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise self._problem("delete", names[0], error) from error
                return
            except _FAILURES as error:
                if not left or not isinstance(error, exceptions.GenericError):
                    raise self._problem("delete", names[0], error) from error

    def child(self, path: str) -> S3Storage:
        path = checked(path.rstrip("/"))
        return replace(self, prefix=f"{self.prefix}/{path}" if self.prefix else path)

    def sweep_temporary(self, older_than: timedelta) -> int:
        limit_ms = (datetime.now(UTC) - older_than).timestamp() * 1000
        left = [listed.path for listed in self._all("") if _is_temporary(listed.path) and listed.modified_ms <= limit_ms]
        if left:
            try:
                obstore.delete(self._store, left)
            except _FAILURES as error:
                raise self._problem("delete", left[0], error) from error
        return len(left)

    def _all(self, prefix: str) -> Sequence[Listed]:
        try:
            pages = obstore.list(self._store, checked(prefix) if prefix else None, chunk_size=1000)
            return [
                Listed(meta["path"], meta["size"], int(meta["last_modified"].timestamp() * 1000))
                for page in pages
                for meta in page
            ]
        except _FAILURES as error:
            if UNREADABLE not in str(error):
                raise self._problem("list", prefix, error) from error
        try:
            folder = "/".join(part for part in (self.prefix, prefix) if part)
            found = listed_with_any_key(self.bucket, folder, endpoint=self.endpoint, region=self.region)
        except OSError as error:
            raise self._problem("list", prefix, error) from error
        start = f"{self.prefix}/" if self.prefix else ""
        return [Listed(listed.path.removeprefix(start), listed.size, listed.modified_ms) for listed in found]

    @property
    def _store(self) -> S3Store:
        process = os.getpid()
        store = self._opened.get(process)
        if store is None:
            store = self._open()
            self._opened.clear()
            self._opened[process] = store
        return store

    def _open(self) -> S3Store:
        config: dict[str, str] = {"copy_if_not_exists": "multipart"}
        if self.endpoint is not None:
            config["endpoint"] = self.endpoint
            config["aws_endpoint_url_s3"] = self.endpoint  # or the environment's would win over the URI's
        if self.region is not None:
            config["region"] = self.region
        try:
            return S3Store(
                self.bucket,
                prefix=self.prefix or None,
                config=config,  # type: ignore[arg-type]
                client_options={"allow_http": self.allow_http, "timeout": "60s", "connect_timeout": "5s"},
                retry_config={"max_retries": 4, "retry_timeout": timedelta(seconds=45)},
            )
        except _FAILURES as error:
            raise StorageError(f"The storage {self.uri} cannot be opened", detail=_short(error)) from error

    def _problem(self, verb: str, path: str, error: Exception) -> StorageError:
        place = self._place(path)
        said = _short(error)
        text = str(error)
        if "NoSuchBucket" in text:
            return StorageError(
                f"There is no bucket {self.bucket}", detail=f"at {self._where}, for {place}", hint="create it, or correct the URI"
            )
        if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError) and verb == "create":
            return AlreadyExistsError(f"{place} exists already")
        if isinstance(error, FileNotFoundError):
            return NotFoundError(f"There is no {place}", detail=f"at {self._where}")
        hint = ""
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
            hint = (
                "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, on the workers too, and that they allow "
                f"GetObject, PutObject, DeleteObject and ListBucket on {self.bucket}"
            )
        elif "169.254.169.254" in text or "InstanceMetadata" in text or "credential" in text.lower():
            hint = "no credentials were found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, on the workers too"
        elif "error sending request" in text or "connect" in text.lower():
            hint = f"{self._where} gave no answer: check the endpoint and the network"
        return StorageError(f"Could not {verb} {place}", detail=f"at {self._where}: {said}", hint=hint)

    def _place(self, path: str) -> str:
        return f"s3://{self.bucket}/" + "/".join(part for part in (self.prefix, path) if part)

    @property
    def _where(self) -> str:
        return self.endpoint or f"Amazon S3, region {self.region or 'us-east-1'}"


class _Reader(io.RawIOBase):
    """A seekable view of an object; one request for each read."""

    def __init__(self, storage: S3Storage, path: str, size: int) -> None:
        self._storage = storage
        self._path = path
        self._size = size
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size}[whence]
        if start + offset < 0:
            raise ValueError(f"cannot seek to {start + offset}, before the beginning of {self._path}")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")
        length = min(len(view), self._size - self._position)
        if length <= 0:
            return 0
        data = self._storage.read_range(self._path, self._position, length)
        view[: len(data)] = data
        self._position += len(data)
        return len(data)


def _is_temporary(path: str) -> bool:
    folder, _, name = path.rpartition("/")
    return name.startswith(TEMPORARY_PREFIX) and (not folder or is_plain_path(folder))


def _is_loopback(endpoint: str) -> bool:
    host = urlsplit(endpoint).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _short(error: Exception) -> str:
    """What obstore says, without its debug dump and the server's XML around the message."""
    text = str(error).partition("\n\nDebug source:")[0]
    message = re.search(r"<Message>(.*?)</Message>", text)
    first = text.partition("<?xml")[0].partition("\n")[0].strip(" :")
    return f"{first}: {message[1]}" if message else first
