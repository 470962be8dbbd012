"""Sessions of user activity, corrected by what comes late.

A session ends when a user does nothing for 30 seconds. An action that comes after its session was reported, but within two
minutes, corrects it: the session is reported again, and two sessions may turn out to have been one. What comes later still is not
dropped silently: it is a stream of its own.

python examples/user_sessions.py
"""

from collections.abc import Iterator
from datetime import timedelta
from typing import NamedTuple

from penstock import DataStream, OutputTag, SessionWindows, StreamEnvironment, ValueState, Watermarks, WindowFunction
from penstock.windows import WindowContext


class Action(NamedTuple):
    user: str
    second: int
    what: str


LATE: OutputTag[Action] = OutputTag("late")

ACTIONS = [
    Action("ann", 0, "login"),
    Action("bob", 5, "login"),
    Action("ann", 20, "search"),
    Action("bob", 60, "buy"),  # bob was away for more than 30 s: another session
    Action("ann", 100, "login"),  # and so was ann
    Action("ann", 35, "buy"),  # late: her first session has been reported without it
    Action("bob", 33, "search"),  # late: his two sessions were one
    Action("ann", 300, "login"),
    Action("ann", 40, "logout"),  # too late
]


class Report(WindowFunction[str, Action, str]):
    """`reports` is state of the user, so it outlives the session."""

    reports = ValueState(int, default=0)

    def process(self, values: list[Action], ctx: WindowContext[str]) -> Iterator[str]:
        self.reports.update(self.reports.value + 1)
        actions = ", ".join(action.what for action in sorted(values, key=lambda action: action.second))
        start, end = ctx.window.start // 1000, ctx.window.end // 1000
        yield f"{ctx.key}, report {self.reports.value}: {start} s to {end} s: {actions}"


def build(env: StreamEnvironment, actions: list[Action]) -> tuple[DataStream[str], DataStream[Action]]:
    # `every`: time moves on after each second of the actions' time, not just after each batch of them.
    watermarks: Watermarks[Action] = Watermarks.bounded(seconds=1, timestamp=lambda action: action.second * 1000, every=1)
    stream = env.from_collection(actions, watermarks=watermarks, name="actions")
    sessions = stream.key_by("user").window(
        SessionWindows(timedelta(seconds=30)), allowed_lateness=timedelta(minutes=2), late=LATE
    )
    reports = sessions.process(Report(), name="sessions")
    return reports, reports.side_output(LATE)


def main() -> None:
    env = StreamEnvironment("user-sessions")
    reports, late = build(env, ACTIONS)
    late.print("too late")
    for report in sorted(reports.execute_and_collect()):
        print(report)


if __name__ == "__main__":
    main()
