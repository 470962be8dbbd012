"""Which program a replay runs, and who says so.

Laws:
- A storage never says by itself what runs. Its record of a program is a proposal: of the record, without `trust`, only what the
  operator has anyway is used.
- The file is one that the operator names, or one below the current folder whose content has the recorded hash. It belongs to the
  operator, others cannot write it, and it is not in the storage that is replayed.
- Arguments come from the operator. The working directory is the current folder, or one between it and the program.
- Recorded settings that name a place, load code or give trust are left out.
"""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.compile.programs import Program, file_hash
from penstock.diagnosis.redaction import MASK
from penstock.errors import ConfigError
from penstock.storage import LocalStorage, Storage

PLAIN_SETTINGS = {"name": str, "parallelism": int, "guarantee": str, "state_store": str}
"""What the command line said when the job was started, and cannot do harm; by type."""

UNSURE = "whoever can write to the storage chose it, and running it would run code"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A program as it is to be run: see `penstock.compile.programs.within`."""

    path: str
    module: str | None = None
    arguments: list[str] = field(default_factory=list)
    folder: str | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def choose_program(
    program: Program | None, storage: Storage, *, app: str | None, arguments: list[str] | None, trust: bool, target: str
) -> Started:
    """The program for a replay of `target`, or why none is run."""
    if app is None:
        _check_recorded(program)
        assert program is not None
        assert program.path is not None
        if trust and program.module is None and not os.path.isfile(program.path):
            raise _gone(program)
        path = program.path if trust else _own_copy(program, storage)
        if path is None:
            raise _not_the_operators(program, target)
    else:
        path = app
    if program is None:
        note = f"replayed with {app}; which program wrote the epoch was not recorded"
        return Started(path=path, arguments=arguments or [], notes=[note])
    folder = program.folder if trust else _own_folder(program, path)
    module = program.module if app is None else None
    if module is not None and not trust and not _is_module(module, path, folder):
        raise _not_the_operators(program, target)
    return Started(
        path=path,
        module=module,
        arguments=_arguments(program, arguments, trust=trust, app=app, target=target),
        folder=folder,
        settings=program.settings if trust else _settings(program.settings, storage),
        notes=_notes(program, app, path),
    )


def _check_recorded(program: Program | None) -> None:
    if program is None or program.path is None:
        raise ConfigError(
            "the program that wrote this epoch was not recorded" if program is None else "the job was not started from a file",
            hint="name the program: --app APP.py, or in Python replay(..., env=env)",
        )


def _gone(program: Program) -> ConfigError:
    return ConfigError(
        f"the program that wrote this epoch is not there any more: {program.path}",
        hint="name it where it is now: --app APP.py",
    )


def _not_the_operators(program: Program, target: str) -> ConfigError:
    if program.path is not None and not os.path.isfile(program.path):
        return _gone(program)
    named = f"-m {program.module}" if program.module is not None else program.path
    return ConfigError(
        f"the program that the storage names is not run unasked: {named}",
        detail=f"{UNSURE}\nno file of yours below {os.getcwd()} has the content that was recorded",
        hint=f"name your program: penstock replay {shlex.quote(target)} --app APP.py\n"
        "--trust runs what the storage names, if nobody but you can have written there",
    )


def _arguments(program: Program, given: list[str] | None, *, trust: bool, app: str | None, target: str) -> list[str]:
    if given is not None or trust or not program.arguments:
        return program.given_arguments() if given is None else given
    named = ["--app", app] if app is not None else []
    kept = f", with the real values instead of {MASK}" if program.redacted else ""
    raise ConfigError(
        "the arguments that the storage names are not given to your program unasked",
        detail=f"recorded: {shlex.join(program.arguments)}",
        hint=f"give the arguments yourself, if these are the ones you started it with{kept}:\n"
        f"{shlex.join(['penstock', 'replay', target, *named, '--', *program.arguments])}\n"
        "--trust takes what the storage names, if nobody but you can have written there",
    )


def _settings(recorded: dict[str, Any], storage: Storage) -> dict[str, Any]:
    kept = {name: value for name, value in recorded.items() if type(value) is PLAIN_SETTINGS.get(name)}
    return {**kept, "storage": storage.uri} if "storage" in recorded else kept


def _notes(program: Program, app: str | None, path: str) -> list[str]:
    if app is not None and not program.files:
        return [f"replayed with {app}; which program wrote the epoch was not recorded"]
    changed = program.changed(path)
    return [f"replayed with today's program: {', '.join(changed)} changed since"] if changed else []


# --- what the operator has -----------------------------------------------------------------------------------------------------


def _own_copy(program: Program, storage: Storage) -> str | None:
    """A file of the operator's below the current folder that is what was recorded."""
    assert program.path is not None
    digest = program.files.get(os.path.basename(program.path), "")
    top = os.path.realpath(os.getcwd())
    foreign = os.path.realpath(storage.root) if isinstance(storage, LocalStorage) else None
    for candidate in _places(program.path, top):
        real = os.path.realpath(candidate)
        inside = _below(real, top) and (foreign is None or not _below(real, foreign))
        if digest and inside and _only_the_operators(real) and file_hash(real) == digest:
            return candidate
    return None


def _places(recorded: str, top: str) -> Iterator[str]:
    """Where a program that was at `recorded` may be below the current folder, here or on another machine."""
    recorded = os.path.normpath(recorded)
    if _below(os.path.realpath(recorded), top):
        yield recorded
    parts = [part for part in recorded.split(os.sep) if part and part != os.pardir]
    for length in range(1, len(parts) + 1):
        yield os.path.join(top, *parts[-length:])


def _only_the_operators(path: str) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.geteuid()) and not status.st_mode & stat.S_IWOTH


def _own_folder(program: Program, path: str) -> str | None:
    """Where the program was started, if that is between the current folder and the program; None: the current folder.

    The program may be elsewhere than it was: what counts is how many folders above it it was started.
    """
    here = os.path.realpath(os.getcwd())
    if program.path is None or not program.folder or os.path.realpath(program.folder) == here:
        return None
    up = os.path.relpath(program.folder, os.path.dirname(program.path))
    if any(part not in (os.curdir, os.pardir) for part in up.split(os.sep)):
        return None
    folder = os.path.realpath(os.path.join(os.path.dirname(os.path.abspath(path)), up))
    return folder if _below(folder, here) else None


def _is_module(module: str, path: str, folder: str | None) -> bool:
    """Does `python -m module`, in this folder, run this very file?"""
    file = os.path.join(folder or os.getcwd(), *module.split(".")) + ".py"
    return module.replace(".", "").isidentifier() and os.path.realpath(file) == os.path.realpath(path)


def _below(path: str, top: str) -> bool:
    return path == top or path.startswith(os.path.join(top, ""))
