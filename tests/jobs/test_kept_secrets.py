"""Secrets among a program's arguments: not in the job's storage, not on the screen, and a replay asks for them again."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pytest
from typer.testing import CliRunner

from penstock.cli.app import app
from penstock.cli.commands.run import command_line
from penstock.compile.programs import Program, read_program, record_program
from penstock.epochs.status_writer import StatusWriter
from penstock.errors import ConfigError
from penstock.jobs.status import read_status
from penstock.snapshots import replay
from penstock.storage import LocalStorage

SECRET = "hunter2"

PROGRAM = """
import sys
from penstock import StreamEnvironment

assert sys.argv[2] == "hunter2", sys.argv
env = StreamEnvironment("kept", executor="inline", parallelism=1)
env.from_collection([1, 2, 3]).map(lambda n: n + 1, name="add").print()
env.execute()
"""


def stored_texts(folder: Path) -> str:
    return "".join(path.read_bytes().decode("latin-1") for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "kept.py").write_text(PROGRAM)
    main = "import sys; from penstock.cli import main; sys.argv[0] = 'penstock'; main()"
    places = ["--storage", str(folder / "job"), "--mirror", str(folder / "mirror")]
    command = ["run", *places, str(folder / "kept.py"), "--", "--password", SECRET]
    done = subprocess.run([sys.executable, "-c", main, *command], capture_output=True, text=True, timeout=100, umask=0o022)
    assert done.returncode == 0, done.stderr
    assert SECRET not in done.stdout + done.stderr
    return folder


@pytest.mark.parametrize("place", ["job", "mirror"])
def test_the_storage_does_not_hold_it(job: Path, place: str) -> None:
    assert SECRET not in stored_texts(job / place)
    record = next((job / place / "programs").glob("*.json"))
    assert '"--password","***"' in record.read_text()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE((job / place / "programs").stat().st_mode) == 0o700
    assert stat.S_IMODE((job / place).stat().st_mode) == 0o700


def test_a_replay_says_that_the_argument_has_to_be_given_again(job: Path) -> None:
    app = str(job / "kept.py")
    with pytest.raises(ConfigError, match="not given to your program unasked") as caught:
        replay(str(job / "job"), "latest", app=app)
    assert "--password" in caught.value.detail
    assert "with the real values instead of ***" in caught.value.hint
    with pytest.raises(ConfigError, match="look like secrets") as caught:
        replay(str(job / "job"), "latest", trust=True)
    assert "give all of its arguments again" in caught.value.hint
    again = replay(str(job / "job"), "latest", app=app, arguments=["--password", SECRET])
    assert again.reproduced


def test_nothing_that_is_shown_holds_it(job: Path) -> None:
    storage = str(job / "job")
    for command in (["jobs", str(job)], ["jobs", str(job), "--json"], ["lineage", storage, "--json"], ["epochs", storage]):
        assert SECRET not in CliRunner().invoke(app, command).output
    assert SECRET not in command_line("app.py", ["--password", SECRET], {"drain": True}, "--fall-back")


def old_record(folder: Path, **fields: object) -> Program:
    """As it was stored before anything was masked."""
    program = Program(hash="0123456789abcdef", plan="p", path="/x/app.py", arguments=["--password", SECRET, "in"], **fields)  # type: ignore[arg-type]
    body = json.dumps({key: getattr(program, key) for key in program.__struct_fields__ if key != "redacted"}).encode()
    (folder / "programs").mkdir(parents=True)
    (folder / "programs" / "0123456789abcdef.json").write_bytes(b'{"crc":%d,"program":' % crc32(body) + body + b"}\n")
    return program


def test_records_of_before_are_read_under_their_hash_and_lose_their_secrets(tmp_path: Path) -> None:
    old_record(tmp_path)
    storage = LocalStorage(tmp_path)
    assert read_program(storage, "0123456789abcdef").given_arguments() == ["--password", SECRET, "in"]
    record_program(storage, Program(hash="fedcba9876543210", plan="p", path="/x/app.py", arguments=["in"]))
    old = read_program(storage, "0123456789abcdef")
    assert (old.arguments, old.redacted) == (["--password", "***", "in"], [1])
    assert SECRET not in stored_texts(tmp_path)
    plain = tmp_path / "programs" / "fedcba9876543210.json"
    os.chmod(plain, 0o644)
    record_program(storage, Program(hash="0" * 16, plan="p"))
    assert stat.S_IMODE(plain.stat().st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "programs" / "0123456789abcdef.json").st_mode) == 0o600
    assert read_program(storage, "fedcba9876543210").given_arguments() == ["in"]


def test_the_hash_of_a_program_without_secrets_is_what_it_was(tmp_path: Path) -> None:
    """And with another password it is the same program."""
    text = (
        "import sys\n"
        "from penstock import StreamEnvironment\n"
        "from penstock.compile.programs import running\n"
        "env = StreamEnvironment('x')\n"
        "env.from_collection([1], name='one').print(name='out')\n"
        "import hashlib, msgspec\n"
        "program = running(env.graph)\n"
        "covered = msgspec.json.encode([sorted(program.files.items()), sys.argv[1:], program.plan], order='deterministic')\n"
        "print(program.hash, hashlib.sha256(covered).hexdigest()[:16])\n"
    )
    (tmp_path / "x.py").write_text(text)

    def hashes(*arguments: str) -> list[str]:
        done = subprocess.run([sys.executable, str(tmp_path / "x.py"), *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    now, before = hashes("--rate", "5", "in")
    assert now == before
    one, with_secret = hashes("--password", "a")
    assert one == hashes("--password", "b")[0] != with_secret


def test_the_status_of_a_failed_job_masks_it(tmp_path: Path) -> None:
    writer = StatusWriter(LocalStorage(tmp_path), "x")
    writer._write()
    writer.ended(None, RuntimeError(f"cannot reach postgres://me:{SECRET}@host"))
    status = read_status(LocalStorage(tmp_path))
    assert status is not None
    assert status.error == "cannot reach postgres://me:***@host"
