"""What every sink keeps; the rules are those at the head of `penstock.connectors.protocol.sink`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

from penstock.connectors.protocol import Fences, RollsBack, Sink, Sweeps
from penstock.errors import PenstockError
from penstock.ids import Epoch
from penstock.plan import job_pickle
from penstock.storage import Storage
from penstock.testing.contracts.broken import require, require_same
from penstock.testing.contracts.sink_case import DyingStorage, SinkCase, SinkFactory, SinkRun

SinkCheck = Callable[[SinkFactory], None]

_MOST_CALLS = 200


def it_is_a_definition(make: SinkFactory) -> None:
    """A sink is small, frozen, picklable, and can be described."""
    sink = make().sink
    require(isinstance(sink, Sink), "a sink has all that penstock.connectors.protocol.Sink has", repr(sink))
    require(bool(sink.describe()), "describe() says what the sink is")
    require_same(job_pickle.loads(job_pickle.dumps(sink)).describe(), sink.describe(), "a sink is the same after it was pickled")


def rows_are_visible_at_the_commit(make: SinkFactory) -> None:
    """Nothing is visible before the commit; then everything is."""
    case = make()
    run = SinkRun(case)
    committer = run.committer()
    prepared = [run.stage(1, range(3), partition=0), run.stage(1, range(10, 12), partition=1)]
    if case.guarantee == "exactly-once":
        require_same(list(case.visible()), [], "nothing is visible before the commit")
    committer.commit(Epoch(1), _stored(case, prepared))
    require_same(sorted(case.visible()), [0, 1, 2, 10, 11], "what was committed is visible, once")
    committer.close()


def order_is_kept(make: SinkFactory) -> None:
    """Rows of a partition keep their order, within an epoch and across epochs."""
    case = make()
    if not case.keeps_order:
        return
    run = SinkRun(case)
    committer = run.committer()
    for epoch in (1, 2, 3):
        committer.commit(Epoch(epoch), _stored(case, [run.stage(epoch, range(epoch * 100, epoch * 100 + 20))]))
    committer.close()
    require_same(list(case.visible()), [*range(100, 120), *range(200, 220), *range(300, 320)], "rows keep their order")


def many_rows_arrive(make: SinkFactory) -> None:
    """More rows than fit into a block, written batch by batch."""
    case = make()
    run = SinkRun(case)
    writer = run.writer(1)
    for start in range(0, 10_000, 2_500):
        writer.write(run.batch(range(start, start + 2_500)))
    committer = run.committer()
    committer.commit(Epoch(1), _stored(case, [writer.prepare()]))
    committer.close()
    require_same(sorted(case.visible()), list(range(10_000)), "all rows arrive, once")


def a_repeated_commit_changes_nothing(make: SinkFactory) -> None:
    """Recovery commits again what may have been committed: by the same driver, or by another."""
    case = make()
    run = SinkRun(case)
    committer = run.committer()
    first = _stored(case, [run.stage(1, range(3))])
    second = _stored(case, [run.stage(2, range(3, 5))])
    committer.commit(Epoch(1), first)
    committer.commit(Epoch(2), second)
    committer.commit(Epoch(2), second)
    committer.close()
    other = run.committer()
    other.commit(Epoch(2), second)
    other.close()
    require_same(sorted(case.visible()), [0, 1, 2, 3, 4], "a commit that is repeated changes nothing")


def a_crash_between_any_two_calls_is_harmless(make: SinkFactory) -> None:
    """The driver dies at any call to its storage during a commit, before or after it took effect; another commits again."""
    for late in (False, True):
        for call in range(1, _MOST_CALLS):
            case = make()
            run = SinkRun(case)
            first = _stored(case, [run.stage(1, range(2))])
            dying = run.committer()
            dying.commit(Epoch(1), first)
            dying.close()
            prepared = _stored(case, [run.stage(2, range(2, 5), partition=0), run.stage(2, range(5, 7), partition=1)])
            storage = DyingStorage(case.storage, call, late=late)
            died = _dies(run, storage, prepared)
            successor = run.committer()
            successor.commit(Epoch(2), prepared)
            successor.commit(Epoch(3), _stored(case, [run.stage(3, range(7, 9))]))
            successor.close()
            seen = sorted(case.visible())
            rule = f"a driver that dies at call {call} of a commit loses nothing and repeats nothing"
            require_same(sorted(set(seen)) if case.guarantee == "at-least-once" else seen, list(range(9)), rule)
            if not died:
                break


def a_failed_attempt_leaves_nothing(make: SinkFactory) -> None:
    """A task that fails is tried again: what it had staged is aborted, or swept when it could not be."""
    case = make()
    if case.guarantee == "at-least-once":
        return
    run = SinkRun(case)
    failed = run.writer(1)
    failed.write(run.batch(range(50, 53)))
    failed.abort()
    lost = run.writer(1)
    lost.write(run.batch(range(60, 63)))
    lost.prepare()
    run.all_attempts_are_dead()
    committer = run.committer()
    committer.commit(Epoch(1), _stored(case, [run.stage(1, range(3))]))
    if isinstance(committer, Sweeps):
        committer.sweep()
    require_same(sorted(case.visible()), [0, 1, 2], "what a failed attempt wrote is never visible")
    if isinstance(committer, Sweeps):
        require_same(committer.sweep(), 0, "what was swept is gone")
    committer.close()


def an_aborted_epoch_is_never_visible(make: SinkFactory) -> None:
    """An epoch that failed is aborted, and planned anew under the same number."""
    case = make()
    if case.guarantee == "at-least-once":
        return
    run = SinkRun(case)
    committer = run.committer()
    committer.abort(Epoch(1), _stored(case, [run.stage(1, range(50, 53))]))
    committer.commit(Epoch(1), _stored(case, [run.stage(1, range(3))]))
    committer.close()
    require_same(sorted(case.visible()), [0, 1, 2], "an aborted epoch is not visible, and the next attempt is")


def a_late_driver_changes_nothing(make: SinkFactory) -> None:
    """A driver that slept while another took over commits again what it had begun."""
    case = make()
    run = SinkRun(case)
    late = run.committer()
    first = _stored(case, [run.stage(1, range(3))])
    late.commit(Epoch(1), first)
    second = _stored(case, [run.stage(2, range(3, 5))])
    new = run.committer()
    new.commit(Epoch(2), second)
    new.commit(Epoch(3), _stored(case, [run.stage(3, range(5, 6))]))
    with suppress(PenstockError):  # it may be told that it is late
        late.commit(Epoch(2), second)
    new.commit(Epoch(4), _stored(case, [run.stage(4, range(6, 7))]))
    late.close()
    new.close()
    require_same(sorted(case.visible()), list(range(7)), "a late driver repeats nothing, and stops nobody")


def output_of_a_line_that_was_given_up_stays_out(make: SinkFactory) -> None:
    """When a job goes back, nothing of an epoch below its new one is published any more."""
    case = make()
    run = SinkRun(case)
    late = run.committer()
    late.commit(Epoch(1), _stored(case, [run.stage(1, range(3))]))
    given_up = _stored(case, [run.stage(2, range(50, 53))])
    new = run.committer()
    if isinstance(new, RollsBack):
        new.roll_back(Epoch(1), Epoch(5))
    elif isinstance(new, Fences):
        new.fence(Epoch(5))
    else:
        return
    with suppress(PenstockError):
        late.commit(Epoch(2), given_up)
    new.commit(Epoch(6), _stored(case, [run.stage(6, range(3, 5))]))
    late.close()
    new.close()
    require_same(sorted(case.visible()), list(range(5)), "what was given up is not published")


def nothing_to_write_is_no_trouble(make: SinkFactory) -> None:
    """An epoch without rows, or without writers, is committed like any other."""
    case = make()
    run = SinkRun(case)
    committer = run.committer()
    committer.commit(Epoch(1), _stored(case, [run.writer(1).prepare()]))
    committer.commit(Epoch(2), [])
    committer.close()
    require_same(list(case.visible()), [], "an epoch without rows publishes none")


def it_can_be_closed(make: SinkFactory) -> None:
    """Close may be called on what was never used, and twice."""
    committer = SinkRun(make()).committer()
    committer.close()
    committer.close()


def _stored(case: SinkCase, committables: Sequence[Any]) -> list[Any]:
    """As they come back from the manifest."""
    if case.sink.volatile:
        return list(committables)
    return cast("list[Any]", json.loads(json.dumps(list(committables))))


def _dies(run: SinkRun, storage: DyingStorage, prepared: list[Any]) -> bool:
    """Commit epoch 2 on a storage that dies; whether it did."""
    try:
        committer = run.committer(cast(Storage, storage))
        committer.commit(Epoch(2), prepared)
    except PenstockError:
        return True
    with suppress(PenstockError):
        committer.close()
    return storage.calls >= storage.at


SINK_CHECKS: tuple[SinkCheck, ...] = (
    it_is_a_definition,
    rows_are_visible_at_the_commit,
    order_is_kept,
    many_rows_arrive,
    a_repeated_commit_changes_nothing,
    a_crash_between_any_two_calls_is_harmless,
    a_failed_attempt_leaves_nothing,
    an_aborted_epoch_is_never_visible,
    a_late_driver_changes_nothing,
    output_of_a_line_that_was_given_up_stays_out,
    nothing_to_write_is_no_trouble,
    it_can_be_closed,
)
"""All checks of sinks."""
