"""One join under a microscope: the harness of steps with two keyed inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.api.environment import StreamEnvironment
from penstock.api.keyed import KeyedStream
from penstock.api.stream import DataStream
from penstock.ids import Milliseconds
from penstock.testing.harness import OperatorHarness


class JoinHarness(OperatorHarness):
    """Drives the step that `join` makes of two keyed streams. Port 0 is the left one, 1 the right one.

    >>> near = lambda left, right: left.interval_join(right).between(-1, 1).apply(lambda a, b: (a, b))
    >>> with JoinHarness(near, key=lambda value: value[0]) as harness:
    ...     harness.send("ann", 5000)
    ...     harness.send("amy", 5500, port=1)
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
