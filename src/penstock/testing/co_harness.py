"""Harnesses for functions without keys, of two inputs, and with a broadcast input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.ids import Milliseconds
from penstock.plan.definition import Definition, ErrorPolicy
from penstock.runtime.operators.co_process import KeyedCoProcess
from penstock.runtime.operators.connected.broadcast import BroadcastProcess, KeyedBroadcastProcess
from penstock.runtime.operators.connected.co_stateless import CoProcess
from penstock.runtime.operators.stateless import per_record
from penstock.testing.harness import OperatorHarness

Key = Callable[[Any], Any]


class ProcessHarness(OperatorHarness):
    """Drives a `ProcessFunction`, on a stream that is not keyed. Records go to the partitions in turn."""

    def __init__(
        self,
        function: Any,
        *,
        errors: ErrorPolicy = "fail",
        parallelism: int = 1,
        max_parallelism: int = 128,
        processing_time: Milliseconds = 0,
    ) -> None:
        super().__init__(
            per_record("process", function, errors),
            key=None,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            processing_time=processing_time,
        )


class CoHarness(OperatorHarness):
    """Drives a `KeyedCoProcessFunction`; without `keys` a `CoProcessFunction` on streams that are not keyed.

    >>> from penstock import ValueState
    >>> from penstock.functions import KeyedCoProcessFunction
    >>> class Paid(KeyedCoProcessFunction):
    ...     order = ValueState(str)
    ...     def process1(self, order, ctx):
    ...         self.order.update(order[1])
    ...     def process2(self, payment, ctx):
    ...         yield self.order.value, payment[1]
    >>> with CoHarness(Paid(), keys=(lambda order: order[0], lambda payment: payment[0])) as harness:
    ...     harness.send1((1, "tea"))
    ...     harness.send2((1, 3))
    ...     harness.take()
    [(('tea', 3), None)]
    """

    def __init__(
        self,
        function: Any,
        keys: tuple[Key, Key] | None = None,
        *,
        key_type: Any = None,
        errors: ErrorPolicy = "fail",
        parallelism: int = 1,
        max_parallelism: int = 128,
        processing_time: Milliseconds = 0,
    ) -> None:
        definition: Definition
        if keys is None:
            definition = CoProcess(body=function, errors=errors)
        else:
            definition = KeyedCoProcess(body=function, key_type=key_type, errors=errors)
        super().__init__(
            definition,
            key=keys,
            key_type=key_type,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            processing_time=processing_time,
        )

    def send1(self, value: Any, timestamp: Milliseconds | None = None) -> None:
        """A record of the first stream."""
        self.send(value, timestamp)

    def send2(self, value: Any, timestamp: Milliseconds | None = None) -> None:
        """A record of the second stream."""
        self.send(value, timestamp, port=1)


class BroadcastHarness(OperatorHarness):
    """Drives a `KeyedBroadcastProcessFunction`; without `key` a `BroadcastProcessFunction` on a stream that is not keyed.

    A snapshot fails if the partitions have changed broadcast state in different ways, as an epoch of a job would.
    """

    def __init__(
        self,
        function: Any,
        key: Key | None = None,
        *,
        key_type: Any = None,
        errors: ErrorPolicy = "fail",
        parallelism: int = 1,
        max_parallelism: int = 128,
        processing_time: Milliseconds = 0,
    ) -> None:
        definition: Definition
        if key is None:
            definition = BroadcastProcess(body=function, errors=errors)
        else:
            definition = KeyedBroadcastProcess(body=function, key_type=key_type, errors=errors)
        super().__init__(
            definition,
            key=(key, None),
            key_type=key_type,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            processing_time=processing_time,
        )

    def broadcast(self, value: Any, timestamp: Milliseconds | None = None) -> None:
        """A record of the broadcast stream: every partition is given it."""
        self.send(value, timestamp, port=1)
