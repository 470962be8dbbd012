"""Ways in which a file is damaged. Each returns what an error may call the file that it is about."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32


class NotApplicable(Exception):  # noqa: N818
    """This damage means nothing to this kind of file."""


@dataclass(frozen=True)
class Target:
    """Files of a kind: the one to damage, others like it, and how one of the next format looks (None: it has no version)."""

    path: Path
    siblings: tuple[Path, ...] = ()
    future: Callable[[bytes], bytes] | None = None
    also: tuple[str, ...] = ()
    """What else an error may name."""


@dataclass(frozen=True)
class Damage:
    action: Callable[[Target, Target, random.Random], None]
    anywhere: bool = False

    def apply(self, target: Target, foreign: Target, dice: random.Random, kind: str) -> list[str]:
        before = {path: path.read_bytes() for path in (target.path, *target.siblings)}
        self.action(target, foreign, dice)
        changed = [path for path, data in before.items() if not path.exists() or path.read_bytes() != data]
        if not changed:
            raise NotApplicable
        return [*(path.name for path in changed), *target.also]


def _rewrite(change: Callable[[bytes, random.Random], bytes]) -> Callable[[Target, Target, random.Random], None]:
    def action(target: Target, foreign: Target, dice: random.Random) -> None:
        target.path.write_bytes(change(target.path.read_bytes(), dice))

    return action


def _flip(data: bytes, dice: random.Random) -> bytes:
    if not data:
        return data
    place = dice.randrange(8 * len(data))
    changed = bytearray(data)
    changed[place // 8] ^= 1 << place % 8
    return bytes(changed)


def _remove(target: Target, foreign: Target, dice: random.Random) -> None:
    target.path.unlink()


def _swap(target: Target, foreign: Target, dice: random.Random) -> None:
    if not target.siblings:
        raise NotApplicable
    sibling = target.siblings[-1]
    data = target.path.read_bytes()
    target.path.write_bytes(sibling.read_bytes())
    sibling.write_bytes(data)


def _from_another_job(target: Target, foreign: Target, dice: random.Random) -> None:
    target.path.write_bytes(foreign.path.read_bytes())


def _future(target: Target, foreign: Target, dice: random.Random) -> None:
    if target.future is None:
        raise NotApplicable
    target.path.write_bytes(target.future(target.path.read_bytes()))


DAMAGES = {
    "emptied": Damage(_rewrite(lambda data, dice: b"")),
    "cut in half": Damage(_rewrite(lambda data, dice: data[: len(data) // 2])),
    "a byte short": Damage(_rewrite(lambda data, dice: data[:-1])),
    "a bit": Damage(_rewrite(_flip), anywhere=True),
    "zeroed": Damage(_rewrite(lambda data, dice: bytes(len(data)))),
    "removed": Damage(_remove),
    "swapped": Damage(_swap),
    "another job's": Damage(_from_another_job),
    "future": Damage(_future),
}


def future_document(data: bytes) -> bytes:
    """A JSON document of the next version, its checksum (a last field `crc`) made right."""
    document = json.loads(data)
    document.pop("crc", None)
    document["version"] += 1
    body = json.dumps(document, separators=(",", ":")).encode()
    return body[:-1] + b',"crc":%d}' % crc32(body)


def future_enveloped(name: str) -> Callable[[bytes], bytes]:
    """The same of one that is kept in an envelope: `{"crc":…,"<name>":…}`."""

    def change(data: bytes) -> bytes:
        document = json.loads(data)[name]
        document["version"] += 1
        body = json.dumps(document, separators=(",", ":")).encode()
        return b'{"crc":%d,"%s":' % (crc32(body), name.encode()) + body + b"}\n"

    return change


def future_state_file(data: bytes) -> bytes:
    return data[:6] + (int.from_bytes(data[6:8], "big") + 1).to_bytes(2, "big") + data[8:]


def future_savepoint(data: bytes) -> bytes:
    """As `savepoint.json` is: indented, the checksum before the rest."""
    head, name, body = data.partition(b'"savepoint": ')
    body = re.sub(rb'("version": )(\d+)', lambda m: m[1] + b"%d" % (int(m[2]) + 1), body.removesuffix(b"\n}\n"), count=1)
    return re.sub(rb"\d+", b"%d" % crc32(body), head) + name + body + b"\n}\n"
