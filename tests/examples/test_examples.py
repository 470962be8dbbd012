"""Every program in `examples/` is run, and prints what it should. The classic ones and windows also run on Spark."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from penstock.compile.in_process import RunOptions, applied

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

PRINTS = {
    "word_count": "  4 to\n  3 the\n  2 be\n",
    "adults": "adult> Person(name='Fred', age=35)\nadult> Person(name='Wilma', age=35)\nadult> Person(name='Barney', age=34)\n",
    "fire_alarm": "fire in the kitchen at 00:04:20\n",
    "keyed_counter": "Summary(customer='ann', purchases=3, cents=1120, favourite='tea')\n"
    "Summary(customer='bob', purchases=3, cents=1190, favourite='bread')\n",
    "even_odd": "even> 0\neven> 2\neven> 4\neven> 6\neven> 8\n",
    "reachability": "depot\nharbour\nmarket\nmill\nquarry\n",
    "two_phase_sink": "100 payments, 100 different, 1 commit tried again\n",
    "spark_feed": "room A: 21 visitors\nroom B: 21 visitors\nroom C: 18 visitors\n",
    "enrich": "AT   1,998,032.40\nCH   1,799,835.81\nDE   1,981,350.00\n",
    "ask_a_service": "0: to Ann in vienna, at 21 degrees\n"
    "1: to Bob in zurich, at 17 degrees\n"
    "2: to Cy in berlin, at 19 degrees\n"
    "45 deliveries of 60 orders\n",
    "orders_and_payments": "3: somebody paid 250 for bread, at a rate of 1.2\n",
    "dead_letters": 'rejected> KeyError in parse: {"sensor": "c"}\n',
    "kill_and_resume": "resumed: 20000 counts, lost 0, repeated 0\n",
    "window_word_count": " 0 s to  5 s: 3 be\n 0 s to  5 s: 3 to\n 5 s to 10 s: 3 the\n",
    "login_fraud": "ann: 3 failures in AT, then a success in BR\n",
    "strict_run": "c0 a2 a3 a4 b7\nc0 a2 a3 b7\nc0 a2 b7\n",
    "sensor_timeouts": "hall: open for 12 s\nleft open> cellar: open since 5 s, nobody closed it by 35 s\n"
    "left open> hall: open since 70 s, nobody closed it by 100 s\n",
    "dynamic_rules": "testing 1: 0.5, then 80\ntesting 2: 0.9, then 300\nrejected> a pattern misses 'version'\n",
    "room_temperatures": "study    08:00  16.0 on average of 6, 16.0 at most\n"
    "study    09:00  19.0 on average of 6, 22.0 at most\n"
    "study    10:00  22.0 on average of 6, 22.0 at most\n",
    "user_sessions": "too late> Action(user='ann', second=40, what='logout')\n"
    "ann, report 1: 0 s to 50 s: login, search\n"
    "ann, report 2: 0 s to 65 s: login, search, buy\n"
    "ann, report 3: 100 s to 130 s: login\n"
    "ann, report 4: 300 s to 330 s: login\n"
    "bob, report 1: 5 s to 35 s: login\n"
    "bob, report 2: 60 s to 90 s: buy\n"
    "bob, report 3: 5 s to 90 s: login, search, buy\n",
    "last_minute": "centre   at  60 s:   6.50 in the last minute\n"
    "centre   at  80 s:   1.50 in the last minute\n"
    "centre   at 100 s:   2.00 in the last minute\n",
    "five_second_counter": "300 events in all, in several windows\n",
    "slack": "slack of 10 s: 0-5 s: 5, 5-10 s: 4, 10-15 s: 4, 15-20 s: 2, 20-25 s: 1; too late: []\n"
    "slack of 2 s: 0-5 s: 3, 5-10 s: 2, 10-15 s: 3, 15-20 s: 2, 20-25 s: 1; too late: [4, 9, 3, 8, 13]\n",
    "ride_cleansing": "ride 1 of taxi 2001 stays in New York\nride 3 of taxi 2003 stays in New York\n",
    "rides_and_fares": "20 rides with their fares, 390.00 USD in all\n",
    "hourly_tips": "until 01:00 driver 0 got 54.00 USD in tips\nuntil 02:00 driver 0 got 53.00 USD in tips\n",
    "long_ride_alerts": "rides of more than two hours: 9, 10, 11, 12, 13, 14, 15, 16\n",
    "changing_rules": "ann is above 110 EUR for games, with a payment of 16 EUR\n"
    "ann is above 40 EUR for books, with a payment of 10 EUR\n"
    "bob is above 110 EUR for games, with a payment of 10 EUR\n"
    "bob is above 40 EUR for books, with a payment of 11 EUR\n"
    "cid is above 110 EUR for games, with a payment of 11 EUR\n"
    "cid is above 40 EUR for books, by a new rule\n",
    "model_scoring": "model 0: 903 payments, score 0.500 on average\n"
    "model 1: 5000 payments, score 0.486 on average\n"
    "model 2: 4097 payments, score 0.601 on average\n",
    "read_your_writes": "anna has ordered for 12.50 EUR\nben has ordered for 3.00 EUR\nanna has ordered for 16.50 EUR\n",
    "query_tweets": "until 01:00 tweet 3 was seen 2 times and clicked 1 times\n",
    "million_keys": "00:00: 1,000,000 keys, 1,500,000 events, at most 2 of a key\n"
    "01:00: 1,000,000 keys, 1,500,000 events, at most 2 of a key\n",
}
"""A part of what each example prints."""

CLASSIC = ["word_count", "reachability", "adults", "fire_alarm", "keyed_counter", "even_odd", "two_phase_sink", "spark_feed"]
WINDOWS = ["window_word_count", "room_temperatures", "user_sessions", "last_minute", "slack"]
NEEDS_SPARK = {"spark_feed"}
MEETING = ["rides_and_fares", "long_ride_alerts", "hourly_tips", "changing_rules", "model_scoring"]
SLOW = {"million_keys"}
AS_PROGRAMS = {"demo"}
"""Run only in a process of its own, by `test_the_demonstration`: it kills one of its workers."""


def overridden(**settings: Any) -> AbstractContextManager[None]:
    return applied(RunOptions(settings=settings))


def run(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(EXAMPLES / f"{name}.py")
    monkeypatch.setattr(sys, "argv", [path])
    runpy.run_path(path, run_name="__main__")


def test_every_example_is_tested() -> None:
    found = {path.stem for path in EXAMPLES.glob("*.py")}
    assert found == PRINTS.keys() | AS_PROGRAMS


def test_every_example_is_in_the_table() -> None:
    listed = set(re.findall(r"\((\w+)\.py\)", (EXAMPLES / "README.md").read_text()))
    assert listed == PRINTS.keys() | AS_PROGRAMS


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in sorted(PRINTS.keys() - NEEDS_SPARK)]
)
def test_inline(name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    with overridden(executor="inline", parallelism=2):
        run(name, monkeypatch)
    assert PRINTS[name] in capsys.readouterr().out


@pytest.mark.parametrize("name", ["word_count", "fire_alarm", "keyed_counter", "enrich", *WINDOWS, *MEETING])
def test_parallelism_and_the_cut_into_epochs_change_nothing(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with overridden(executor="inline", parallelism=3, max_records_per_epoch=1000 if name in ("enrich", "model_scoring") else 2):
        run(name, monkeypatch)
    assert PRINTS[name] in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.parametrize("name", [*CLASSIC, *WINDOWS])
def test_on_spark(spark: Any, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On the session of the tests: an environment uses the one that is running."""
    with overridden(parallelism=2):
        run(name, monkeypatch)
    assert PRINTS[name] in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.slow
def test_as_a_program_on_a_spark_of_its_own() -> None:
    environment = {**os.environ, "PENSTOCK_MASTER": "local[2,4]"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "word_count.py")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(PRINTS["word_count"])


@pytest.mark.spark
@pytest.mark.slow
def test_the_demonstration(tmp_path: Path) -> None:
    """Short, and in a folder of its own: by default it clears `build/demo`, where somebody may be looking at another run."""
    command = [sys.executable, str(EXAMPLES / "demo.py"), "--seconds", "4", "--folder", str(tmp_path / "demo")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "exactly once: 80,000 events in, counts add up" in done.stdout
