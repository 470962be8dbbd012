"""Copying a state file from one storage to another, and reading the copy: what is damaged is refused before anything names it."""

from __future__ import annotations

import msgspec

from penstock.errors import CorruptFileError, NotFoundError
from penstock.failpoints import fail_point
from penstock.state.files.durable import FileRef, verify_file
from penstock.storage import Storage

_CHUNK = 4 * 1024 * 1024


def copy_file(source: Storage, target: Storage, ref: FileRef, name: str, *, hint: str, point: str) -> None:
    """Copy a file to `name`, and read the copy. `point`: a fail-point that is passed while it is copied."""
    try:
        found = source.size(ref.name)
        if found != ref.size:
            raise CorruptFileError(f"{ref.name} of {source.uri} has {found} bytes instead of {ref.size}", hint=hint)
        with source.open(ref.name) as file, target.writer(name) as copy:
            while data := file.read(_CHUNK):
                copy.write(data)
                fail_point(point)
    except NotFoundError as error:
        raise CorruptFileError(f"{ref.name} of {source.uri} is missing", hint=hint) from error
    verify_file(target, msgspec.structs.replace(ref, name=name))
