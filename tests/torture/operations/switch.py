"""A switch that puts a local folder out of order, as a network mount would be, for all processes of a campaign at once.

The switch is a file. Processes that find its path in their environment (see `site/sitecustomize.py`) look at it before every
call of a `LocalStorage` below the folder that it names:

| mode | what a call does |
|---|---|
| `fail` | raises an input/output error |
| `hang` | does not return until the switch is turned off: a hard mount whose server is away |
| `slow` | takes `delay_s` longer |
| `lost` | takes effect, and raises all the same: `share` of the writes |
"""

from __future__ import annotations

import errno
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, BinaryIO, Literal

from penstock.storage.local import LocalStorage

VARIABLE = "PENSTOCK_TORTURE_SWITCH"
READS = ("read", "read_range", "open", "exists", "size", "list")
WRITES = ("create", "replace", "delete", "sweep_temporary")
POLL_S = 0.05

Mode = Literal["fail", "hang", "slow", "lost"]


@dataclass(frozen=True, slots=True)
class Trouble:
    """What is wrong with which folder."""

    folder: str
    mode: Mode
    delay_s: float = 0.0
    share: float = 1.0


class Switch:
    """The campaign's side."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def turn_on(self, trouble: Trouble) -> None:
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(asdict(trouble)))
        new.replace(self.path)

    def turn_off(self) -> None:
        self.path.unlink(missing_ok=True)


def obey(path: str) -> None:
    """From now on every local storage of this process heeds the switch at `path`."""
    for name in (*READS, *WRITES):
        setattr(LocalStorage, name, _heeding(path, name, getattr(LocalStorage, name)))
    LocalStorage.writer = _heeding_writer(path, LocalStorage.writer)  # type: ignore[method-assign]


def _trouble(switch: str, storage: LocalStorage) -> Trouble | None:
    try:
        with open(switch) as file:
            trouble = Trouble(**json.load(file))
    except FileNotFoundError:
        return None
    inside = f"{storage.root}/".startswith(f"{trouble.folder.rstrip('/')}/")
    return trouble if inside else None


def _before(switch: str, storage: LocalStorage, verb: str, path: str) -> bool:
    """Suffer what there is to suffer. True: what is written now takes effect, but the writer is not told so."""
    trouble = _trouble(switch, storage)
    if trouble is None:
        return False
    if trouble.mode == "fail":
        raise _no_answer(storage, verb, path)
    if trouble.mode == "slow":
        time.sleep(trouble.delay_s)
    while trouble is not None and trouble.mode == "hang":
        time.sleep(POLL_S)
        trouble = _trouble(switch, storage)
    return trouble is not None and trouble.mode == "lost" and random.random() < trouble.share


def _no_answer(storage: LocalStorage, verb: str, path: str) -> Exception:
    return storage._problem(verb, path, OSError(errno.EIO, os.strerror(errno.EIO)))


def _heeding(switch: str, name: str, whole: Callable[..., Any]) -> Callable[..., Any]:
    def heeding(storage: LocalStorage, *args: Any, **options: Any) -> Any:
        path = args[0] if args and isinstance(args[0], str) else ""
        lost = _before(switch, storage, name, path)
        done = whole(storage, *args, **options)
        if lost and name in WRITES:
            raise _no_answer(storage, name, path)
        return done

    return heeding


def _heeding_writer(switch: str, whole: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def heeding(storage: LocalStorage, path: str, **options: Any) -> Iterator[BinaryIO]:
        lost = _before(switch, storage, "create", path)
        with whole(storage, path, **options) as file:
            yield file
        if lost:
            raise _no_answer(storage, "create", path)

    return heeding
