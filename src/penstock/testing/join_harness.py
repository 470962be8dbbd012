"""One join under a microscope: the harness of steps with two keyed inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from penstock.api.environment import StreamEnvironment
from penstock.api.keyed import KeyedStream
from penstock.api.stream import DataStream
from penstock.ids import MAX_WATERMARK, Milliseconds
from penstock.jobs.manifest import StateLayout
from penstock.records import Records
from penstock.runtime.frames import Keyed
from penstock.runtime.ports import JoinedPort
from penstock.testing.harness import OperatorHarness


class JoinHarness(OperatorHarness):
    """Drives the step that `join` makes of two keyed streams. Input 0 is the left one, 1 the right one.

    >>> near = lambda left, right: left.interval_join(right).between(-1, 1).apply(lambda a, b: (a, b))
    >>> with JoinHarness(near, key=lambda value: value[0]) as harness:
    ...     harness.send("ann", 5000, input=0)
    ...     harness.send("amy", 5500, input=1)
    ...     harness.take()
    [(('ann', 'amy'), 5500)]
    """

    def __init__(
        self,
        join: Callable[[KeyedStream[Any, Any], KeyedStream[Any, Any]], DataStream[Any]],
        key: Callable[[Any], Any],
        *,
        key_type: Any = None,
        parallelism: int = 1,
        max_parallelism: int = 128,
        processing_time: Milliseconds = 0,
    ) -> None:
        env = StreamEnvironment("harness")
        sides: list[KeyedStream[Any, Any]] = [
            env.from_collection([], name=name).key_by(key, key_type=key_type) for name in ("left", "right")
        ]
        made = join(sides[0], sides[1])
        super().__init__(
            env.graph.nodes[made._step].definition,
            key=key,
            key_type=key_type,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            processing_time=processing_time,
        )

    def send(self, value: Any, timestamp: Milliseconds | None = None, input: int = 0) -> None:
        """One record at an input."""
        encoded = self._codec.encode(self._key(value))
        times = None if timestamp is None else np.asarray([timestamp], dtype=np.int64)
        payload = Keyed(Records([value], times), [encoded], np.zeros(1, dtype=np.int32))
        self._ports[self._partition_of(encoded)][input].on_batch(payload)

    def watermark(self, time: Milliseconds, input: int | None = None) -> None:
        """Event time of an input, or of both, reaches `time`."""
        for ports in self._ports:
            for number, port in enumerate(ports):
                if input is None or number == input:
                    port.on_watermark(time)

    def end(self) -> None:
        """The input is over for good: all time has passed, and every timer fires."""
        self.watermark(MAX_WATERMARK)
        for operator in self._operators:
            operator.on_end()

    def _open(self, layout: StateLayout, watermarks: dict[str, Milliseconds]) -> None:
        super()._open(layout, watermarks)
        self._ports = [[JoinedPort(operator, number) for number in range(2)] for operator in self._operators]
