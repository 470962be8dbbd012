"""The commands, in this process, on the inline executor."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner, Result

from penstock import __version__
from penstock.cli import app
from penstock.cli.commands.doctor import Finding, run_checks
from penstock.cli.commands.stop import stop_job
from penstock.cli.screen.progress import duration
from penstock.errors import PenstockError
from penstock.ids import Term
from penstock.jobs.status import read_status
from penstock.jobs.terms import TermInfo
from penstock.storage import open_storage

PROGRAM = """
import sys
from beside import double
from penstock import StreamEnvironment

env = StreamEnvironment("numbers", executor="inline", parallelism=2)
numbers = env.from_collection(range(int(sys.argv[1])), name="numbers").map(double)
numbers.key_by(lambda n: n % 3).reduce(lambda a, b: a + b, name="sums").print("sum ")
env.execute()
print("arguments", sys.argv[1:])
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "beside.py").write_text("def double(n):\n    return 2 * n\n")
    path = tmp_path / "numbers_app.py"
    path.write_text(PROGRAM)
    return path


def penstock(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def failing(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "failing.py"
    path.write_text(
        f"from penstock import *\nenv = StreamEnvironment('x', executor='inline', restart=RestartPolicy(attempts=0))\n{body}"
    )
    return path


def test_run_shows_output_progress_and_summary(program: Path, tmp_path: Path) -> None:
    done = penstock("run", program, "6", "--parallelism", 1, "--storage", tmp_path / "job", "--", "--verbose")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines()[-1] == "arguments ['6', '--verbose']"
    assert "finished: all input is processed" in done.stderr
    assert "numbers: starting" in done.stderr


def test_run_goes_on_where_it_was(program: Path, tmp_path: Path) -> None:
    first = penstock("run", program, "6", "--storage", tmp_path / "job")
    again = penstock("run", program, "6", "--storage", tmp_path / "job")
    assert first.stdout.count("sum ") == 6
    assert again.exit_code == 0
    assert again.stdout.count("sum ") == 0


def test_an_error_is_what_detail_and_hint(tmp_path: Path) -> None:
    path = failing(tmp_path, "env.from_collection([1]).map(lambda n: n / 0, name='broken').print()\nenv.execute()\n")
    done = penstock("run", path)
    assert done.exit_code == 1
    assert "step 'broken': ZeroDivisionError" in done.stderr
    assert f"{path}:3" in done.stderr
    assert "hint:" in done.stderr
    assert "frames of penstock (--trace" in done.stderr
    assert "stateless.py" not in done.stderr
    whole = penstock("run", path, "--trace").stderr
    assert "stateless.py" in whole
    assert "frames of penstock" not in whole
    assert "stateless.py" not in penstock("run", path).stderr  # --trace was for one run


def test_an_error_of_the_program_itself_shows_the_program_only(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = failing(tmp_path, "nonsense\n")
    done = penstock("run", path)
    assert done.exit_code == 1
    assert "NameError" in done.stderr
    assert "runpy" not in done.stderr


def test_a_setting_that_makes_no_sense(program: Path) -> None:
    done = penstock("run", program, "3", "--guarantee", "sometimes")
    assert done.exit_code == 1
    assert "guarantee is 'sometimes'" in done.stderr


def test_no_program(tmp_path: Path) -> None:
    done = penstock("run", tmp_path / "nothing.py")
    assert done.exit_code == 1
    assert "there is no program" in done.stderr


def test_a_program_that_executes_nothing_is_told(tmp_path: Path) -> None:
    done = penstock("run", failing(tmp_path, ""))
    assert done.exit_code == 0
    assert "ended without executing anything" in done.stderr


def test_explain(program: Path) -> None:
    done = penstock("explain", program, "6")
    assert done.exit_code == 0, done.output
    assert "sums: keyed reduce" in done.stdout
    assert "arguments" not in done.stdout


def test_explain_as_json(program: Path) -> None:
    data = json.loads(penstock("explain", "--json", program, "6").stdout)
    assert data["job"] == "numbers"
    assert [step["id"] for step in data["steps"]] == ["numbers", "map-1", "sums", "sink-1"]


def test_explain_of_a_program_that_executes_nothing(tmp_path: Path) -> None:
    done = penstock("explain", failing(tmp_path, ""))
    assert done.exit_code == 1
    assert "ended without executing anything" in done.stderr


def test_jobs(program: Path, tmp_path: Path) -> None:
    penstock("run", program, "6", "--storage", tmp_path / "jobs" / "a")
    penstock("run", program, "6", "--storage", tmp_path / "jobs" / "deeper" / "b", "--name", "other")
    found = json.loads(penstock("jobs", tmp_path / "jobs", "--json").stdout)
    assert [(job["name"], job["condition"], job["storage"]) for job in found] == [
        ("numbers", "finished", str(tmp_path / "jobs" / "a")),
        ("other", "finished", str(tmp_path / "jobs" / "deeper" / "b")),
    ]
    assert found[0]["pid"] == os.getpid()
    assert found[0]["epoch"] >= 2
    assert "finished" in penstock("jobs", tmp_path / "jobs").stdout


@pytest.mark.parametrize("command", ["run", "explain", "check"])
def test_an_option_that_does_not_exist(program: Path, command: str) -> None:
    wrong = {"run": "--paralelism", "explain": "--parallelsim", "check": "--agianst"}[command]
    right = {"run": "--parallelism", "explain": "--parallelism", "check": "--against"}[command]
    done = penstock(command, program, "6", wrong, 3)
    assert done.exit_code == 2
    assert f"penstock {command} has no option {wrong}" in done.stderr
    assert f"did you mean {right}?" in done.stderr
    assert "put the program's own options behind `--`" in done.stderr
    assert "sum " not in done.stdout


def test_an_option_of_a_command_without_a_program() -> None:
    done = penstock("jobs", "--jsno")
    assert done.exit_code == 2
    assert "did you mean --json?" in done.stderr
    assert "program's own" not in done.stderr


def test_a_setting_that_does_not_exist(tmp_path: Path) -> None:
    for body in ("StreamEnvironment('y', paralelism=3)", "env.from_collection([1]).print()\nenv.execute(paralelism=3)"):
        done = penstock("run", failing(tmp_path, f"{body}\n"))
        assert done.exit_code == 1
        assert "unknown setting 'paralelism'" in done.stderr
        assert "did you mean parallelism?" in done.stderr


def test_jobs_below_a_folder_that_is_not_there(tmp_path: Path) -> None:
    done = penstock("jobs", tmp_path / "nosuch")
    assert done.exit_code == 1
    assert f"there is no folder {tmp_path / 'nosuch'}" in done.stderr


def test_no_jobs(tmp_path: Path) -> None:
    assert "no jobs" in penstock("jobs", tmp_path).stdout


def test_a_damaged_job_is_listed_as_such(program: Path, tmp_path: Path) -> None:
    penstock("run", program, "6", "--storage", tmp_path / "job")
    max((tmp_path / "job" / "epochs").glob("*.json")).write_bytes(b"{}")
    found = json.loads(penstock("jobs", tmp_path / "job", "--json").stdout)
    assert found[0]["condition"] == "damaged"


def test_status_tells_how_it_ended(program: Path, tmp_path: Path) -> None:
    penstock("run", program, "6", "--storage", tmp_path / "job")
    status = read_status(open_storage(tmp_path / "job"))
    assert status is not None
    assert (status.phase, status.records_in, status.pid) == ("finished", 6, os.getpid())


def with_driver(tmp_path: Path, program: Path, term: TermInfo) -> Path:
    """A job whose newest driver is another one."""
    penstock("run", program, "6", "--storage", tmp_path / "job")
    open_storage(tmp_path / "job").create(f"terms/{term.term:06d}.json", msgspec.json.encode(term))
    return tmp_path / "job"


def test_stop_where_nobody_drives(program: Path, tmp_path: Path) -> None:
    storage = with_driver(tmp_path, program, TermInfo(Term(9), socket.gethostname(), 2**22 + 1, 0))
    done = penstock("stop", storage)
    assert done.exit_code == 1
    assert "the job is not running" in done.stderr
    assert json.loads(penstock("jobs", storage, "--json").stdout)[0]["condition"] == "finished"


def test_stop_where_nobody_answers(program: Path, tmp_path: Path) -> None:
    storage = with_driver(tmp_path, program, TermInfo(Term(9), "another-host", 1, 0))
    done = penstock("stop", storage, "--timeout", 0.1)
    assert done.exit_code == 1
    assert "no answer within 0.1 seconds" in done.stderr
    assert "process 1 on another-host" in done.stderr
    assert not list((storage / "requests").glob("*.json"))


def test_stop_names_the_jobs_below(program: Path, tmp_path: Path) -> None:
    penstock("run", program, "6", "--storage", tmp_path / "jobs" / "a")
    with pytest.raises(PenstockError, match="holds no job") as caught:
        stop_job(open_storage(tmp_path / "jobs"), 0.1)
    assert "jobs/a" in caught.value.detail


def test_version() -> None:
    assert penstock("version").stdout.startswith("penstock 0.")
    assert penstock("--version").stdout == f"penstock {__version__}\n"


def test_doctor_without_spark(tmp_path: Path) -> None:
    done = penstock("doctor", "--no-spark", "--storage", tmp_path / "job", "--local-dir", tmp_path / "local")
    assert done.exit_code == 0, done.output
    assert "Everything a job needs is here" in done.stdout


def test_doctor_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = penstock("doctor", "--no-spark", "--storage", blocked / "job", "--local-dir", tmp_path / "local")
    assert done.exit_code == 1
    assert "problem" in done.stdout


def test_a_check_that_raises_is_a_problem() -> None:
    def broken() -> list[Finding]:
        raise ValueError("no luck")

    (found,) = run_checks([("luck", broken)])
    assert not found.ok
    assert "no luck" in found.found


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0123, "12 ms"), (3.42, "3.4 s"), (300, "5.0 min"), (7200, "2.0 h"), (864_000, "10.0 d"), (-2, "-2.0 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
