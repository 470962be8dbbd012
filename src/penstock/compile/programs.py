"""Programs: which one wrote an epoch, and where it is.

Laws:
- A program's hash covers what decides about results: its source, its own modules, its arguments and its plan. Where it lies and
  when it was started do not matter: the record beside the hash says where it was last started from.
- What looks like a secret is not in the record, nor in the hash, from which it could be guessed: another password makes no other
  program.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shlex
import sys
import sysconfig
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from penstock.diagnosis.redaction import MASK, redact_arguments, redact_data
from penstock.errors import AlreadyExistsError, ConfigError, CorruptFileError, NotFoundError
from penstock.jobs import paths
from penstock.plan.nodes import Graph
from penstock.runtime.operators.expressions import Filter, Project
from penstock.runtime.operators.sink import SinkStep
from penstock.runtime.operators.source import SourceStep
from penstock.state.overlay.handles import state_codec
from penstock.storage import LocalStorage, Storage, private
from penstock.storage.documents import LIST_BYTES, UNREADABLE, read_small
from penstock.storage.sealed import enclose, enclosed

VERSION = 1
MODULES = 500
"""Maximum number of own modules in a program's record."""


class Program(msgspec.Struct, frozen=True, kw_only=True):
    """A program as it was started. `path`: None if it was no file (a notebook, a test)."""

    version: int = VERSION
    hash: str
    plan: str
    path: str | None = None
    module: str | None = None
    """It was started as `python -m module`."""
    arguments: list[str] = []
    """Secrets are masked."""
    redacted: list[int] = []
    """Which of the arguments are not as they were given."""
    folder: str = ""
    """The working directory."""
    settings: dict[str, Any] = {}
    """What the command line said."""
    files: dict[str, str] = {}
    """The hashes of its file and of its own modules, by path from the folder that its file is in."""
    penstock: str = ""
    python: str = ""
    started_ms: int = 0

    def given_arguments(self) -> list[str]:
        """The arguments as they were given; `ConfigError` if the record does not hold them all."""
        if self.redacted:
            raise ConfigError(
                "the program was started with arguments that look like secrets, which are not stored",
                detail=f"recorded: {shlex.join(self.arguments)}",
                hint="give all of its arguments again on the command line, with the real values instead of "
                f"{MASK}: penstock replay JOB@EPOCH -- ARGS",
            )
        return list(self.arguments)

    def without_secrets(self) -> Program:
        """As it is stored."""
        arguments = redact_arguments(self.arguments)
        hidden = {n for n, (given, kept) in enumerate(zip(self.arguments, arguments, strict=True)) if given != kept}
        return msgspec.structs.replace(
            self,
            arguments=arguments,
            redacted=sorted(hidden.union(self.redacted)),
            settings=redact_data(self.settings),
        )

    def changed(self, path: str | None = None) -> list[str]:
        """Its files that are not what they were; of another copy of it if `path` says where that is."""
        place = path or self.path
        if place is None:
            return []
        top = os.path.dirname(os.path.abspath(place))
        own = os.path.basename(self.path or place)
        names = {name: os.path.basename(place) if name == own else name for name in self.files}
        return [name for name, digest in sorted(self.files.items()) if file_hash(os.path.join(top, names[name])) != digest]


def running(graph: Graph, settings: Mapping[str, Any] | None = None) -> Program:
    """The program that this process runs, with the plan it has made."""
    main = sys.modules.get("__main__")
    file, spec = getattr(main, "__file__", None), getattr(main, "__spec__", None)
    path = os.path.abspath(file) if file is not None and _is_program(file) else None
    arguments = list(sys.argv[1:]) if path is not None else []
    files = {} if path is None else _own_files(path)
    plan = plan_hash(graph)
    covered = msgspec.json.encode([sorted(files.items()), redact_arguments(arguments), plan], order="deterministic")
    program = Program(
        hash=hashlib.sha256(covered).hexdigest()[:16],
        plan=plan,
        path=path,
        module=spec.name if path is not None and spec is not None else None,
        arguments=arguments,
        folder=os.getcwd(),
        settings=_plain(settings or {}),
        files=files,
        penstock=_version(),
        python=platform.python_version(),
        started_ms=round(time.time() * 1000),
    )
    return program.without_secrets()


def plan_hash(graph: Graph) -> str:
    """Of steps, edges, expressions and states; not of paths, functions and settings."""
    steps = []
    for node in graph:
        definition = node.definition
        ends = isinstance(definition, SourceStep | SinkStep)
        edges = [
            [i.step, i.tag, None if i.exchange is None else [i.exchange.kind, _selector(i.exchange.selector)]]
            for i in node.inputs
        ]
        states = [[s.name, s.kind, s.what, None if s.state is None else state_codec(s.state).schema] for s in node.states()]
        step = [node.step, definition.kind.partition(" ")[0] if ends else definition.kind, edges, states]
        if isinstance(definition, Project | Filter):
            step.append(definition.data())
        steps.append(step)
    return hashlib.sha256(msgspec.json.encode(steps, order="deterministic", enc_hook=repr)).hexdigest()[:16]


def _selector(selector: Any) -> Any:
    return "function" if callable(selector) else None if selector is None else list(selector)


# --- the record in the job's storage ---------------------------------------------------------------------------------------


def record_program(storage: Storage, program: Program) -> None:
    """Keep which program it is, and where it was last started from."""
    path, data = paths.program(program.hash), _encoded(program.without_secrets())
    storage = private(storage)
    if isinstance(storage, LocalStorage):
        _hide_old_secrets(storage)
    try:
        storage.create(path, data)
    except AlreadyExistsError:
        try:
            known: Program | None = read_program(storage, program.hash)
        except CorruptFileError:
            known = None
        if known is None or _place(known) != _place(program):
            storage.replace(path, data)


def _encoded(program: Program) -> bytes:
    return enclose("program", msgspec.json.encode(program))


def _hide_old_secrets(storage: LocalStorage) -> None:
    """Records of before, when secrets were not masked and everybody could read them, are written again; their hashes stay."""
    for listed in storage.list(paths.PROGRAMS):
        try:
            known = read_program(storage, os.path.basename(listed.path).removesuffix(".json"))
        except (CorruptFileError, NotFoundError):
            continue
        hidden = known.without_secrets()
        if hidden != known or not storage.is_private(listed.path):
            storage.replace(listed.path, _encoded(hidden))


def read_program(storage: Storage, digest: str) -> Program:
    """The record of a program, by its hash; `NotFoundError` if there is none."""
    path = paths.program(digest)
    data = read_small(storage, path, LIST_BYTES)
    body = enclosed("program", data)
    if body is None:
        raise CorruptFileError(f"{path} is damaged: its checksum does not match", hint="name the program yourself: --app APP.py")
    try:
        written = msgspec.json.decode(body, type=_Versioned).version
        if written != VERSION:
            raise CorruptFileError(f"{path} is of format {written}; this Penstock reads format {VERSION}")
        program = msgspec.json.decode(body, type=Program)
    except UNREADABLE as error:
        raise CorruptFileError(f"{path} cannot be read", detail=str(error)) from error
    if program.hash != digest:
        raise CorruptFileError(f"{path} is the record of program {program.hash}: files were mixed up")
    return program


class _Versioned(msgspec.Struct, frozen=True):
    version: int


def find_program(storage: Storage, digest: str) -> Program | None:
    """The record of a program; None if the job was started without one."""
    try:
        return read_program(storage, digest) if digest else None
    except NotFoundError:
        return None


def _place(program: Program) -> tuple[Any, ...]:
    return program.path, program.module, program.folder, program.settings


# --- what a program is made of -----------------------------------------------------------------------------------------------

_LIBRARIES = tuple(
    os.path.join(os.path.realpath(sysconfig.get_path(name)), "") for name in ("stdlib", "purelib", "platlib", "scripts")
)


def _is_program(file: str) -> bool:
    """Is it a person's own file, and not a tool that runs it (pytest, a notebook's kernel)?"""
    real = os.path.realpath(file)
    return os.path.isfile(real) and not real.startswith(_LIBRARIES) and f"{os.sep}site-packages{os.sep}" not in real


def _own_files(path: str) -> dict[str, str]:
    """The program's file and its modules below the same folder, with their hashes."""
    top = os.path.join(os.path.dirname(path), "")
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    found = {os.path.basename(path): file_hash(path)}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not file.endswith(".py") or file.startswith(_LIBRARIES) or len(found) > MODULES:
            continue
        file = os.path.abspath(file)
        if file.startswith(top) and not file.startswith(here) and _is_program(file):
            found[file[len(top) :]] = file_hash(file)
    return dict(sorted(found.items()))


def file_hash(path: str) -> str:
    """The hash of a file; "" if there is none."""
    try:
        with open(path, "rb") as file:
            return hashlib.sha256(file.read()).hexdigest()[:16]
    except OSError:
        return ""


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that JSON can hold, as those of the command line are."""
    return {name: value for name, value in settings.items() if isinstance(value, str | int | float | bool)}


def _version() -> str:
    try:
        return version("penstock")
    except PackageNotFoundError:
        return ""
