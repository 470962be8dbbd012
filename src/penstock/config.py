"""Settings of a job, validated when they are made."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal

from penstock.errors import ConfigError
from penstock.ids import Milliseconds
from penstock.setting_types import check_types
from penstock.timing.durations import Duration, to_ms

__all__ = ["JobConfig", "LookupCache", "RestartPolicy", "Retry"]

Guarantee = Literal["exactly-once", "at-least-once", "at-most-once"]
ExecutorName = Literal["spark", "inline"]
StateStore = Literal["memory", "lmdb", "rocksdb"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """How often, and how soon, a failed epoch is tried again. `attempts` in a row; a committed epoch sets the count back."""

    attempts: int = 5
    first_delay: Duration = timedelta(milliseconds=200)
    factor: float = 2.0
    longest_delay: Duration = timedelta(seconds=30)

    def __post_init__(self) -> None:
        check_types(self)

    def delay_ms(self, failures: int) -> Milliseconds | None:
        """How long to wait after so many failures in a row; None: give up."""
        if failures > self.attempts:
            return None
        return round(min(to_ms(self.first_delay) * self.factor ** (failures - 1), to_ms(self.longest_delay)))


NO_RESTART = RestartPolicy(attempts=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """How often, and how soon, a call that failed is made again: `attempts` times after the first.

    - `on`: the exceptions after which that is done; after others it is not.
    - `if_result`: so is it if this is true of the result. That of the last attempt is taken, whatever it is.
    - `attempt_timeout`: how long one attempt may take; the step's `timeout=` is for all of them with the delays between.

    >>> [Retry(attempts=4, first_delay=0.1, longest_delay=0.5).delay_s(number) for number in (1, 2, 3, 4)]
    [0.1, 0.2, 0.4, 0.5]
    """

    attempts: int = 3
    first_delay: Duration = timedelta(milliseconds=100)
    factor: float = 2.0
    longest_delay: Duration = timedelta(seconds=10)
    on: tuple[type[Exception], ...] = (Exception,)
    if_result: Callable[[Any], bool] | None = None
    attempt_timeout: Duration | None = None

    def __post_init__(self) -> None:
        check_types(self)
        if self.attempts < 0 or self.factor < 1:
            raise ConfigError(
                f"Retry(attempts={self.attempts!r}, factor={self.factor!r})",
                hint="attempts is 0 or more, and each delay is at least as long as the one before: factor is 1 or more",
            )
        given: tuple[Any, ...] = self.on
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in given):
            raise ConfigError(f"Retry(on={self.on!r})", hint="give classes of exceptions: on=(ConnectionError, TimeoutError)")
        for what in ("first_delay", "longest_delay"):
            to_ms(getattr(self, what), what=what)
        if self.attempt_timeout is not None and to_ms(self.attempt_timeout, what="attempt_timeout") < 1:
            raise ConfigError("attempt_timeout is less than a millisecond", hint="leave it out if an attempt may take any time")

    def delay_s(self, failures: int) -> float:
        """How long to wait after so many failures of one call, in seconds."""
        return min(to_ms(self.first_delay) * self.factor ** (failures - 1), to_ms(self.longest_delay)) / 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupCache:
    """What a `lookup_join` keeps of the answers, in each worker and partition.

    - `size`: of so many keys at most; those that were not used for longest go first.
    - `ttl`: for so long after it was answered; None: until it goes.
    - `absent`: also that there is nothing for a key.
    """

    size: int = 10_000
    ttl: Duration | None = None
    absent: bool = True

    def __post_init__(self) -> None:
        check_types(self)
        if self.size < 1:
            raise ConfigError(f"LookupCache(size={self.size!r})", hint="a cache has room for one key; cache=None is none")
        if self.ttl is not None and to_ms(self.ttl, what="ttl") < 1:
            raise ConfigError("the ttl of a LookupCache is less than a millisecond", hint="cache=None keeps nothing")


@dataclass(frozen=True, slots=True, kw_only=True)
class JobConfig:
    """Everything about how a job runs, as opposed to what it computes."""

    name: str
    storage: str | None = None
    parallelism: int = field(default_factory=lambda: max(1, min(os.cpu_count() or 1, 128)))
    max_parallelism: int | None = None
    """The number of key groups; None: those of the job, and of a new one, by its parallelism, 128 or more."""
    executor: ExecutorName = "spark"
    master: str | None = None
    spark_config: dict[str, str] = field(default_factory=dict)
    guarantee: Guarantee = "exactly-once"
    target_epoch: Duration = timedelta(seconds=1)
    epoch_interval: Duration = timedelta(0)
    max_records_per_epoch: int = 1_000_000
    first_records_per_epoch: int = 20_000
    max_bytes_per_epoch: int = 256 * 1024 * 1024
    keep: int = 10
    compact_after: int = 16
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    until_idle: bool = False
    drain: bool = False
    """Until idle: then end all time, so that windows close and timers fire, as at the end of bounded input."""
    local_dir: str | None = None
    keep_local: Duration = timedelta(days=7)
    """How long local stores of jobs stay that nobody works on."""
    state_store: StateStore = "lmdb"
    pipeline: int | None = None
    """How many epochs may run ahead of the last committed one; None: 8 on Spark, 0 inline."""
    checkpoint_interval: Duration = timedelta(0)
    """Epochs are committed together, this far apart; 0: each as soon as possible."""
    restore_from: str | None = None
    """A savepoint, `JOB@EPOCH`, or `latest`."""
    restore_again: bool = False
    """Start from `restore_from` once more, though the job has started from it already or has come far by itself."""
    allow_dropped_state: bool = False
    repeat_output: bool = False
    """Going back: sinks that cannot take their output back may publish it again."""
    repair: bool = False
    """Going back: the old file output stays until the new one has caught up with it, then is replaced at once."""
    trust: bool = False
    """State of a foreign place may be decoded by code (pickle) that it brings."""
    fall_back: bool = False
    standby: bool = False
    """Wait until the running driver dies or hangs, then take over."""
    take_over: bool = False
    """Take the job over from a driver that runs it now, instead of refusing to start."""
    lease: Duration = timedelta(seconds=10)
    """How long a driver may give no sign of life before a standby takes over; a start watches for half as long."""
    hang_after: Duration | None = None
    """A driver whose loop has not come round for so long hangs: no sign of life. Longer than any epoch; None: ten leases."""
    stall_after: Duration = timedelta(seconds=60)
    """A Spark job of which no executor has run a task for so long is given up, and Spark started anew. If no executor is left: a
    third of it."""
    stop_within: Duration = timedelta(seconds=20)
    """A job that was asked to stop waits this long for what it does, and then as long for closing."""
    mirror: str | None = None
    """A second place to which committed epochs are copied."""
    force: bool = False
    """Start from a mirror though the storage that it is of is driven."""

    def __post_init__(self) -> None:
        check_types(self)
        _check(
            bool(self.name) and "/" not in self.name, f"the job's name is {self.name!r}", "use a non-empty name without slashes"
        )
        _check(
            self.max_parallelism is None or 1 <= self.max_parallelism <= 32768,
            f"max_parallelism is {self.max_parallelism}",
            "choose 1 to 32768",
        )
        _check(
            1 <= self.parallelism <= (self.max_parallelism or 32768),
            f"parallelism is {self.parallelism}",
            f"choose 1 to max_parallelism ({self.max_parallelism or 32768})",
        )
        _check(
            self.guarantee in ("exactly-once", "at-least-once", "at-most-once"),
            f"guarantee is {self.guarantee!r}",
            "choose exactly-once, at-least-once or at-most-once",
        )
        _check(self.executor in ("spark", "inline"), f"executor is {self.executor!r}", "choose spark or inline")
        _check(self.max_records_per_epoch >= 1, f"max_records_per_epoch is {self.max_records_per_epoch}", "choose 1 or more")
        _check(
            self.first_records_per_epoch >= 1, f"first_records_per_epoch is {self.first_records_per_epoch}", "choose 1 or more"
        )
        _check(self.max_bytes_per_epoch >= 1, f"max_bytes_per_epoch is {self.max_bytes_per_epoch}", "choose 1 or more")
        _check(self.keep >= 1, f"keep is {self.keep}", "keep at least one epoch")
        _check(self.compact_after >= 1, f"compact_after is {self.compact_after}", "choose 1 or more")
        _check(
            to_ms(self.target_epoch, what="target_epoch") > 0, "target_epoch is zero", "give a duration, for example seconds=1"
        )
        to_ms(self.epoch_interval, what="epoch_interval")
        to_ms(self.keep_local, what="keep_local")
        _check(
            to_ms(self.checkpoint_interval, what="checkpoint_interval") == 0 or self.guarantee != "at-most-once",
            "an at-most-once job has a checkpoint_interval",
            "leave it out: at most once, what was read is never read again",
        )
        _check(to_ms(self.lease, what="lease") > 0, "lease is zero", "give a duration, for example seconds=10")
        _check(
            self.hang_after is None or to_ms(self.hang_after, what="hang_after") >= to_ms(self.lease),
            "hang_after is shorter than the lease",
            "choose a time that no epoch takes: ten leases, or more",
        )
        _check(to_ms(self.stall_after, what="stall_after") > 0, "stall_after is zero", "give a duration, for example seconds=60")
        _check(to_ms(self.stop_within, what="stop_within") > 0, "stop_within is zero", "give a duration, for example seconds=20")
        _check(
            not (self.standby and self.restore_again),
            "a standby is to start from a snapshot again",
            "start the job that way first, without standby: a take-over must not set it back",
        )
        _check(
            not (self.standby and self.take_over),
            "a standby is to take the job over at once",
            "choose one: a standby waits until the driver dies or hangs",
        )
        _check(self.pipeline is None or self.pipeline >= 0, f"pipeline is {self.pipeline}", "choose 0 or more")
        _check(
            self.state_store in ("memory", "lmdb", "rocksdb"),
            f"state_store is {self.state_store!r}",
            "choose memory, lmdb or rocksdb",
        )

    def describe(self) -> dict[str, Any]:
        return {"name": self.name, "parallelism": self.parallelism, "guarantee": self.guarantee, "executor": self.executor}


def _check(right: bool, what: str, hint: str) -> None:
    if not right:
        raise ConfigError(what, hint=hint)
