"""A process of ours beside this one, talked to over its standard streams: msgpack messages, each behind its length."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Any, TypeVar

import msgspec

T = TypeVar("T")


class PipedProcess:
    """Runs `serve`, a function of a module, on the streams for tasks and answers and on `arguments`.

    Ctrl-C at a terminal does not reach it: whoever started it ends it.
    """

    def __init__(self, serve: Callable[..., None], *arguments: str, own_session: bool = False) -> None:
        # Not `-m`: packages import such modules themselves, and runpy would warn of that on the user's terminal.
        main = (
            f"import sys; from {serve.__module__} import {serve.__name__} as serve; "
            "serve(sys.stdin.buffer, sys.stdout.buffer, *sys.argv[1:])"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", main, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=own_session,
            process_group=None if own_session else 0,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._tasks, self._answers = self._process.stdin, self._process.stdout

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def send(self, task: Any) -> None:
        send(self._tasks, task)

    def receive(self, kind: type[T]) -> T | None:
        """The next answer; None: the process has ended."""
        return receive(self._answers, kind)

    def kill(self) -> int:
        """End it; its exit code. A `receive` in another thread returns."""
        self._process.kill()
        return self._process.wait()

    def close(self) -> None:
        self.kill()
        for stream in (self._tasks, self._answers):
            with contextlib.suppress(OSError):  # of a task that was not read
                stream.close()


def send(stream: IO[bytes], message: Any) -> None:
    data = msgspec.msgpack.encode(message)
    stream.write(len(data).to_bytes(8, "big") + data)
    stream.flush()


def receive(stream: IO[bytes], kind: type[T]) -> T | None:
    """The next message; None: the other end is gone, perhaps in the middle of one."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    length = int.from_bytes(head, "big")
    data = stream.read(length)
    return msgspec.msgpack.decode(data, type=kind) if len(data) == length else None
