"""Storages as somebody leaves them who can write there, and nowhere else: every checksum is right."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

from typer.testing import CliRunner, Result

from penstock import KeyedProcessFunction, StreamEnvironment, ValueState
from penstock.cli import app
from penstock.compile.programs import Program, read_program, record_program
from penstock.config import NO_RESTART
from penstock.snapshots.savepoint.format import SavepointInfo, encode_info, read_info
from penstock.storage import open_storage
from penstock.storage.sealed import seal
from penstock.testing import ScriptedSource

ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e[link=http://evil]"
"""Renames the window, clears the screen, colours, turns the direction of writing, and is a link in rich's markup."""


def penstock(*arguments: Any) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


class Trap:
    """Creates a file when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = str(marker)

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.write_text, (Path(self.marker), "unpickled")


class Keeping(KeyedProcessFunction[Any, Any, Any]):
    """Keeps something of each key."""

    def __init__(self, state: ValueState[Any], keep: Callable[[Any], Any] = lambda n: n) -> None:
        self.held = state
        self._keep = keep

    def process(self, record: Any, ctx: Any) -> list[Any]:
        self.held.update(self._keep(record))
        return [record]


def keeping(storage: Path, function: Keeping, count: int = 4, name: str = "job", **settings: Any) -> StreamEnvironment:
    """A job in `storage` that keeps state by key, and prints."""
    settings = {"executor": "inline", "parallelism": 1, "restart": NO_RESTART, "max_records_per_epoch": 2, **settings}
    env = StreamEnvironment(name, storage=str(storage), until_idle=True, **settings)
    stream = env.from_source(ScriptedSource(list(range(count)), cut=2), name="in").key_by(lambda n: n % 2, key_type=int)
    stream.process(function, name="step").print(name="out")
    return env


# --- forging -------------------------------------------------------------------------------------------------------------------


def newest_manifest(storage: Path) -> Path:
    return max((storage / "epochs").glob("*.json"))


def forge_manifest(storage: Path, change: Callable[[dict[str, Any]], object], path: Path | None = None) -> None:
    """The newest manifest, with a change."""
    path = path or newest_manifest(storage)
    whole = json.loads(path.read_bytes())["manifest"]
    change(whole)
    body = json.dumps(whole).encode()
    path.write_bytes(b'{"crc":%d,"manifest":' % crc32(body) + body + b"}\n")


def forge_savepoint(place: Path, change: Callable[[SavepointInfo], SavepointInfo]) -> None:
    (place / "savepoint.json").write_bytes(encode_info(change(read_info(open_storage(place)))))


def forge_document(path: Path, **changes: Any) -> None:
    """A small document with a checksum: `job.json`, a note, a mirror's."""
    whole = {**json.loads(path.read_bytes()), **changes}
    whole.pop("crc", None)
    path.write_bytes(seal(whole))


def forge_program(storage: Path, **changes: Any) -> Program:
    """The record of the program that wrote the newest epochs, with changes."""
    (path,) = (storage / "programs").glob("*.json")
    program = read_program(open_storage(storage), path.stem)
    forged = Program(**{**{name: getattr(program, name) for name in program.__struct_fields__}, **changes})
    path.unlink()
    record_program(open_storage(storage), forged)
    return forged
