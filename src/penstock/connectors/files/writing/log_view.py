"""What of a log is visible, as runs of entry numbers. Pure.

A log's entries are a tree: an entry with files follows the newest one of its line, and going back starts another branch. A
*view* is a path from the root, the *shown* one, and during a repair a second one, the *held* one, that readers do not see yet.
Numbers grow along a path, so that a path is a few runs of numbers.

- publish: the path that grows (held, if there is one) ends with the new entry.
- back to epoch K: shown is the line of K, as it was when K was the newest epoch. Nothing is held.
- repair from K: shown stays as it is; held is the line of K.
- switch: what was held is shown.

The *line* of a view is what the job itself has published: held if there is such, else shown. A reader that has read up to an
entry can go on as long as that entry is on the path: everything before it on the path is what it has read.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

Run = tuple[int, int]
Runs = tuple[Run, ...]


class View(msgspec.Struct, frozen=True):
    """Entries that readers see, and during a repair those that they will see instead."""

    shown: Runs = ()
    held: Runs | None = None

    @property
    def line(self) -> Runs:
        return self.shown if self.held is None else self.held


def everything(number: int) -> View:
    """All entries up to a number: a log in which nothing was ever taken back."""
    return View(((1, number),) if number > 0 else ())


def published(view: View, number: int) -> View:
    if view.held is None:
        return View(_grown(view.shown, number))
    return View(view.shown, _grown(view.held, number))


def back(then: View) -> View:
    """`then`: the view when the epoch gone back to was the newest."""
    return View(then.line)


def repair(now: View, then: View) -> View:
    return View(now.shown, then.line)


def switched(view: View) -> View:
    return View(view.line)


def holds(runs: Runs, number: int) -> bool:
    return any(first <= number <= last for first, last in runs)


def numbers(runs: Runs) -> Iterator[int]:
    for first, last in runs:
        yield from range(first, last + 1)


def shared(one: Runs, other: Runs) -> int:
    """The newest entry of both paths; 0 when they have nothing in common."""
    return max((min(a[1], b[1]) for a in one for b in other if max(a[0], b[0]) <= min(a[1], b[1])), default=0)


def up_to(runs: Runs, number: int) -> Runs:
    return tuple((first, min(last, number)) for first, last in runs if first <= number)


def beyond(runs: Runs, number: int) -> Runs:
    return tuple((max(first, number + 1), last) for first, last in runs if last > number)


def _grown(runs: Runs, number: int) -> Runs:
    if runs and runs[-1][1] == number - 1:
        return (*runs[:-1], (runs[-1][0], number))
    return (*runs, (number, number))
