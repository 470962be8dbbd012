"""What two jobs have published, compared: the rows of their file sinks as multisets, whatever files and epochs they are in.

Law: rows that both sides have cancel as they are read, so memory grows with the differences (and with how far the two are apart).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import zip_longest
from typing import Any

import msgspec

from penstock.connectors.files.reading.published import published_rows
from penstock.connectors.files.writing.log_format import Owner
from penstock.connectors.files.writing.names import LOG, OWNER
from penstock.errors import NotFoundError
from penstock.storage import Storage, open_storage
from penstock.storage.documents import NOTE_BYTES, read_small
from penstock.storage.sealed import unseal

_encode = msgspec.json.Encoder(order="sorted", enc_hook=repr).encode


@dataclass(slots=True)
class OutputDiff:
    """How the output of a sink differs: rows that only one side has, with examples. `only`: the sink is on one side only."""

    sink: str
    same: int = 0
    only_a: int = 0
    only_b: int = 0
    only: str = ""
    examples_a: list[Any] = field(default_factory=list)
    examples_b: list[Any] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not (self.only_a or self.only_b or self.only)


def diff_output(a: str, b: str, *, examples: int = 3) -> list[OutputDiff]:
    """Compare what file sinks have published: `a` and `b` are folders of one sink each, or folders with those of several.

    Several are paired by the names of the sinks.
    """
    first, second = sink_folders(open_storage(a)), sink_folders(open_storage(b))
    if len(first) == len(second) == 1:
        ((name, left),), ((_, right),) = first.items(), second.items()
        return [_compare(name, left, right, examples)]
    return [_compare(name, first.get(name), second.get(name), examples) for name in sorted(first.keys() | second.keys())]


def sink_folders(root: Storage) -> dict[str, str]:
    """The folders below (or at) a place that file sinks write to, by the sink's name."""
    found: dict[str, str] = {}
    for listed in root.list():
        if listed.path == OWNER or listed.path.endswith(f"/{OWNER}"):
            folder = listed.path[: -len(OWNER)].rstrip("/")
            owner = unseal(read_small(root, listed.path, NOTE_BYTES), Owner, f"{root.uri}/{listed.path}")
            found[owner.sink] = (root.child(folder) if folder else root).uri
    if not found:
        raise NotFoundError(
            f"no file sink has published below {root.uri}", hint=f"give a folder of a FileSink: it has {LOG}/ in it"
        )
    return found


def _compare(name: str, left: str | None, right: str | None, examples: int) -> OutputDiff:
    result = OutputDiff(name, only="B" if left is None else "A" if right is None else "")
    surplus: dict[bytes, int] = {}
    for sign, row in _alternately(left, right):
        digest = _digest(row)
        count = surplus.get(digest, 0)
        if count * sign < 0:
            result.same += 1
        if count + sign:
            surplus[digest] = count + sign
        else:
            del surplus[digest]
    result.only_a = sum(count for count in surplus.values() if count > 0)
    result.only_b = -sum(count for count in surplus.values() if count < 0)
    for uri, sign, shown in ((left, 1, result.examples_a), (right, -1, result.examples_b)):
        for row in published_rows(open_storage(uri)) if uri is not None and len(shown) < examples else ():
            digest = _digest(row)
            if surplus.get(digest, 0) * sign > 0:
                shown.append(row)
                surplus[digest] -= sign
                if len(shown) == examples:
                    break
    return result


def _alternately(left: str | None, right: str | None) -> Iterator[tuple[int, Any]]:
    """Rows of both sides in turns; 1 for the left, -1 for the right."""
    nothing = object()
    sides = [published_rows(open_storage(uri)) if uri is not None else iter(()) for uri in (left, right)]
    for mine, yours in zip_longest(*sides, fillvalue=nothing):
        if mine is not nothing:
            yield 1, mine
        if yours is not nothing:
            yield -1, yours


def _digest(row: Any) -> bytes:
    return blake2b(_encode(row), digest_size=16).digest()
