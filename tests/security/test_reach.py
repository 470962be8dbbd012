"""What can be reached of a running job: no port, and no directory of another user's."""

from __future__ import annotations

import ast
import os
from pathlib import Path
from typing import Any

import pytest

from penstock import StreamEnvironment, ValueState
from penstock.compile.programs import Program
from penstock.errors import AlreadyExistsError, StateError
from penstock.jobs.requests import ask
from penstock.state.stores.local import store_path
from penstock.storage import open_storage
from tests.security.hostile import Keeping, keeping

SRC = Path(__file__).parents[2] / "src"
LISTENING = "0A"


def listening() -> set[str]:
    """The ports on which this process listens."""
    inodes = {os.readlink(f"/proc/self/fd/{fd}")[8:-1] for fd in os.listdir("/proc/self/fd") if is_socket(fd)}
    found = set()
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] == LISTENING and words[9] in inodes:
                found.add(words[1])
    return found


def is_socket(fd: str) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{fd}").startswith("socket:")
    except OSError:
        return False


@pytest.mark.skipif(not os.path.exists("/proc/self/net/tcp"), reason="needs Linux's /proc")
def test_a_driver_opens_no_port(tmp_path: Path) -> None:
    import socket

    with socket.socket() as probe:  # the look finds what is there
        probe.bind(("127.0.0.1", 0))
        probe.listen()
        assert len(listening()) >= 1
    before = listening()
    seen: list[set[str]] = []

    def look(n: int) -> int:
        seen.append(listening())
        return n

    env = StreamEnvironment(
        "job", executor="inline", parallelism=1, storage=str(tmp_path / "job"), mirror=str(tmp_path / "mirror")
    )
    env.from_collection([1, 2]).map(look).print()
    env.execute()
    assert seen
    assert all(ports == before for ports in seen)


def test_no_module_listens() -> None:
    for path in SRC.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                assert node.func.attr not in ("listen", "serve_forever", "create_server", "start_server"), f"{path}:{node.lineno}"


def test_local_state_is_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Path(store_path(str(tmp_path / "local"), "job", "f", 1, 1, 0))
    for folder in (made, *made.parents):
        if folder == tmp_path:
            break
        assert folder.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "getuid", lambda: os.stat(tmp_path).st_uid + 1)
    with pytest.raises(StateError, match="belongs to another user"):
        store_path(str(tmp_path / "local"), "job", "f", 1, 1, 0)


def test_a_request_replaces_no_answer(tmp_path: Path) -> None:
    """Requests are objects in the storage: who cannot write there cannot send any; and none is written over another."""
    storage = open_storage(tmp_path)
    identity = ask(storage, "stop")
    with pytest.raises(AlreadyExistsError):
        storage.create(f"requests/{identity}.json", b"{}")


def test_an_unknown_request_is_no_command(tmp_path: Path) -> None:
    storage = tmp_path / "job"
    keeping(storage, Keeping(ValueState(int))).execute()
    seen: list[int] = []

    class Asking(Keeping):
        def process(self, record: Any, ctx: Any) -> list[Any]:
            if not seen:
                ask(open_storage(storage), "exec", command="touch marker")
            seen.append(record)
            return super().process(record, ctx)

    keeping(storage, Asking(ValueState(int)), count=8).execute()
    assert seen


def test_what_a_program_record_holds() -> None:
    """Everything in it comes from the storage: whatever is added must be thought of in `whose_program.py`."""
    assert set(Program.__struct_fields__) == {
        *("version", "hash", "plan", "path", "module", "arguments", "folder", "settings", "files"),
        *("penstock", "python", "started_ms", "redacted"),
    }
