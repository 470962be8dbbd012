"""A replay on the screen: a table of steps, the timeline of one of them, state before and after."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.screen.printable import echo
from penstock.cli.screen.replay_changes import changed_text, lists_text, unchanged_text, value_text
from penstock.cli.screen.tables import console_for, print_table
from penstock.ids import MAX_WATERMARK
from penstock.jobs.manifest import EpochInput
from penstock.snapshots import Replay, Replayable, StepReplay
from penstock.snapshots.replay.result import ABSENT, NO_KEY, Difference, Event, StateChange, Verdict
from penstock.snapshots.replay.selection import spans
from penstock.state.entries.kinds import is_internal, kinds

_DATES_FROM = 10_000_000_000
"""Smaller times are no dates but counts, as in tests."""


def show_replay(console: Console, replay: Replay, *, step: str | None, key: str | None, trace: bool = False) -> None:
    together = "" if len(replay.epochs) < 2 else f"; {len(replay.epochs)} that were committed together are run in order"
    console.print(
        Text.assemble(
            ("replay of ", ""),
            (f"epoch {replay.wanted}", "bold"),
            f" of job {replay.job}, from the snapshot of epoch {replay.parent}{together}",
        )
    )
    console.print(Text(f"processing time {moment(replay.processing_time)}, parallelism {replay.parallelism}", style="dim"))
    for note in replay.notes:
        console.print(Text(f"note: {note}", style="yellow"))
    if step is None and key is None:
        print_table(console, summary_table(replay))
    else:
        for one in replay.steps.values():
            if one.step == step or (step is None and one.keyed and (one.events or one.changes)):
                show_step(console, one, key)
    if replay.failure is not None:
        _show_failure(console, replay, trace)
    _show_verdict(console, replay)
    if replay.recorded is not None:
        console.print(f"recorded as a test case in {replay.recorded}", soft_wrap=True)


def summary_table(replay: Replay) -> Table:
    table = Table(title_justify="left")
    table.add_column("step", overflow="fold")
    table.add_column("kind", overflow="fold")
    skipped = any(step.skipped for step in replay.steps.values())
    for column in ("in", "out", "keys", "timers", "state changed", *(("skipped",) if skipped else ())):
        table.add_column(column, justify="right")
    for step in replay.steps.values():
        failed = step.step == replay.failed_step
        table.add_row(
            Text(step.step, style="bold red" if failed else "bold"),
            Text(step.kind),
            f"{step.records_in:,}",
            f"{step.records_out:,}",
            f"{step.keys:,}" if step.keyed else "",
            f"{step.timers:,}" if step.keyed else "",
            f"{step.changed:,}" if step.keyed else "",
            *((f"{step.skipped:,}" if step.skipped else "",) if skipped else ()),
        )
    return table


def show_step(console: Console, step: StepReplay, key: str | None) -> None:
    console.print()
    about = f"  {step.kind}" + (f"  {step.function}" if step.function else "")
    console.print(Text.assemble((step.step, "bold"), (about, "dim")), soft_wrap=True)
    if not step.events:
        console.print(Text("  nothing happened here" + (f" for the key {key}" if key is not None else ""), style="dim"))
    for event in step.events:
        for line in event_lines(event, one_key=key is not None):
            console.print(line, soft_wrap=True)
    if step.left_out:
        console.print(Text(f"  and {step.left_out:,} more: --limit", style="dim"))
    if step.changes:
        print_table(console, changes_table(step.changes), prose=("before", "after"))
    if step.changes_left_out:
        console.print(Text(f"  and {step.changes_left_out:,} more changes of state: --limit", style="dim"))


def event_lines(event: Event, *, one_key: bool) -> Iterator[Text]:
    """An event as a few lines: what came, what went out, what became of the state."""
    head = Text(f"  #{event.number} ", style="bold")
    head.append(event.kind if event.domain is None else f"{event.domain}-time {event.kind}")
    if event.key is not NO_KEY and not one_key:
        head.append("  key ", "dim").append(value_text(event.key), "magenta")
    if event.window is not None:
        head.append(f"  window {moment(event.window[0])} to {moment(event.window[1])}", "dim")
    if event.timestamp_ms is not None:
        head.append(f"  at {moment(event.timestamp_ms)}", "dim")
    head.append(f"  watermark {moment(event.watermark_ms)}", "dim")
    if event.late:
        head.append("  late", "yellow")
    yield head
    if event.kind == "record":
        yield _line("in", event.value, "cyan")
    for out in event.outputs:
        at = "" if out.timestamp_ms in (None, event.timestamp_ms) else f"  at {moment(out.timestamp_ms)}"
        yield _line("out" if out.tag is None else f"out [{out.tag}]", out.value, "green", at)
    for timer in event.timers:
        yield _plain("timer", f"{'deleted' if timer.deleted else 'set'} for {timer.domain} time {moment(timer.time)}", "blue")
    for name, before, after in state_steps(event):
        if before is after:
            yield _plain("state", f"{name} = {unchanged_text(after)}", "dim yellow")
        else:
            yield _plain("state", f"{name}: {' → '.join(changed_text(before, after))}", "yellow")
    if event.error is not None:
        yield _plain("raised", event.error, "bold red")


def state_steps(event: Event) -> Iterator[tuple[str, Any, Any]]:
    """What a call did to the state of its key: (name, before, after); of what it left alone, the same object twice."""
    after = event.after if event.after is not None else event.before or {}
    before = event.before if event.before is not None else after
    for name in sorted(before.keys() | after.keys()):
        was, now = before.get(name, ABSENT), after.get(name, ABSENT)
        yield (name, now, now) if repr(was) == repr(now) else (name, was, now)


def changes_table(changes: list[StateChange]) -> Table:
    table = Table(title="state before and after the epoch", title_justify="left")
    windowed = any(change.window is not None for change in changes)
    for column in ("key", *(("window",) if windowed else ()), "state", "before", "after"):
        table.add_column(column, overflow="fold")
    for change in sorted(changes, key=lambda change: repr(change.key)):
        name = change.state if change.map_key is NO_KEY else f"{change.state}[{value_text(change.map_key)}]"
        window = "" if change.window is None else f"{moment(change.window[0])} to {moment(change.window[1])}"
        shown = before_and_after(change)
        row = [value_text(change.key), *((window,) if windowed else ()), name, *shown]
        table.add_row(*(Text(cell) for cell in row))
    return table


def before_and_after(change: StateChange) -> tuple[str, str]:
    before, after = change.before, change.after
    if is_internal(change.kind):
        return (
            value_text(before) if before is ABSENT else moment(before),
            value_text(after) if after is ABSENT else moment(after),
        )
    if kinds()[change.kind].spread and isinstance(before, list) and isinstance(after, list) and after[: len(before)] == before:
        return lists_text(before, after)
    return changed_text(before, after)


def _show_failure(console: Console, replay: Replay, trace: bool) -> None:
    failure = replay.failure
    assert failure is not None
    console.print(Text(f"the epoch fails: {failure.what}", style="bold red"), soft_wrap=True)
    if failure.detail:
        console.print(Text("  " + failure.detail.replace("\n", "\n  ")), soft_wrap=True)
    if trace:
        console.print(Text(failure.trace), soft_wrap=True)
    event = replay.failed
    if event is not None:
        key = "" if event.key is NO_KEY else f" --key {key_argument(event.key)}"
        stop = f"--step {replay.failed_step}{key} --pdb --at {event.number}"
        console.print(Text(f"  to stop right before it: {stop}", style="green"), soft_wrap=True)


def key_argument(key: Any) -> str:
    """A key as `--key` takes it, for the shell."""
    return shlex.quote(key if isinstance(key, str) else repr(key))


def _show_verdict(console: Console, replay: Replay) -> None:
    verdict = replay.verdict
    if verdict.reproduced:
        entries = "1 entry" if verdict.entries == 1 else f"{verdict.entries:,} entries"
        same = f"{entries} of state, the times and the counts are what was committed"
        console.print(Text.assemble(("reproduced exactly", "bold green"), f": {same}"), soft_wrap=True)
    elif verdict.reproduced is False and replay.failure is not None:
        console.print(Text("not reproduced: this epoch was committed, and fails now", style="bold red"))
    elif verdict.reproduced is False:
        _show_differences(
            console, verdict, changed=any(note.startswith("replayed with today's program") for note in replay.notes)
        )
    elif replay.failure is None:
        left = "" if not replay.backlog else f"; about {replay.backlog:,} records more wait to be read (--records)"
        console.print(Text(f"not committed, so there is nothing to compare with{left}", style="dim"), soft_wrap=True)


def _show_differences(console: Console, verdict: Verdict, *, changed: bool) -> None:
    console.print(Text("not reproduced: it comes out differently the second time", style="bold red"))
    for difference in verdict.differences:
        console.print(_difference(difference), soft_wrap=True)
    if verdict.more:
        console.print(Text(f"  and {verdict.more:,} more", style="dim"))
    hint = (
        "the program has changed since: is this the difference that you meant?"
        if changed
        else "a function that looks at the clock, at random numbers, at another system or at its own fields does that; "
        "so does a program or an input that has changed"
    )
    console.print(Text(f"  hint: {hint}", style="green"), soft_wrap=True)


def _difference(difference: Difference) -> Text:
    where = [] if difference.step is None else [f"step {difference.step}"]
    if difference.key is not NO_KEY:
        where.append(f"key {value_text(difference.key)}")
    text = Text("  " + ", ".join([*where, difference.what]) + ": ")
    text.append(f"committed {value_text(difference.committed)}", "green")
    text.append(f", replayed {value_text(difference.replayed)}", "red")
    return text


def show_list(name: str, found: list[Replayable], *, as_json: bool) -> None:
    """The epochs that can be replayed."""
    if as_json:
        echo(json.dumps([{**asdict(one), "inputs": [given.epoch for given in one.inputs]} for one in found], indent=1))
        return
    if not found:
        echo(f"no epoch of {name} can be replayed: an epoch and the one before it must be kept (keep=)")
        return
    table = Table(title=f"epochs of {name} that can be replayed", title_justify="left")
    for column in ("epoch", "committed", "records in", "program"):
        table.add_column(column, justify="right" if column in ("epoch", "records in") else "left")
    for one in found:
        table.add_row(_epochs(one.inputs), moment(one.created_ms), f"{one.records_in:,}", one.program or "-")
    print_table(console_for(), table)


def _epochs(inputs: tuple[EpochInput, ...]) -> str:
    return spans(given.epoch for given in inputs)


def _line(what: str, value: Any, style: str, after: str = "") -> Text:
    return _plain(what, value_text(value), style).append(after, "dim")


def _plain(what: str, text: str, style: str) -> Text:
    return Text(f"      {what:<6} ", style="dim").append(text, style)


def moment(time: Any) -> str:
    """A time for people: a date if it can be one."""
    if time is None:
        return "none yet"
    if time == MAX_WATERMARK:
        return "the end"
    if isinstance(time, int) and _DATES_FROM < time < 253_402_300_800_000:
        return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    return str(time)
