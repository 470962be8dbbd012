"""A listing of a bucket in which somebody else has left keys that are no paths: `epochs//a.json`, `./b.json`, `../c.json`.

The client library that does everything else (`obstore`) refuses such a listing as a whole, for one key. Arrow's client shows
every key as it is. It is loaded only then.
"""

from __future__ import annotations

from penstock.storage.protocol import Listed

UNREADABLE = "Encountered object with invalid path"
"""What obstore says of a listing with such a key."""

_TRIES = 4


def listed_with_any_key(bucket: str, folder: str, *, endpoint: str | None, region: str | None) -> list[Listed]:
    """All objects below `folder` of a bucket (of all of it, if empty), with paths relative to the bucket. Raises `OSError`."""
    from pyarrow import fs

    options = {"endpoint_override": endpoint, "region": region}
    client = fs.S3FileSystem(
        **{name: value for name, value in options.items() if value is not None},
        connect_timeout=5,
        request_timeout=60,
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=_TRIES),
    )
    found = client.get_file_info(fs.FileSelector(f"{bucket}/{folder}".rstrip("/"), recursive=True, allow_not_found=True))
    return [
        Listed(info.path.removeprefix(f"{bucket}/"), info.size, (info.mtime_ns or 0) // 1_000_000)
        for info in found
        if info.type == fs.FileType.File
    ]
