"""Named places where a test can make a process die, stop or wait.

`PENSTOCK_FAILPOINTS="name=action@count;…"` in the environment of driver and workers. Actions: `kill` (SIGKILL of this
process), `stop` (SIGSTOP), `raise`, `sleep:seconds`. `count`: the how-manieth time the point is passed in this process
(default 1). When the variable is not set a point costs one attribute look-up. `PENSTOCK_FAILPOINTS_ONCE=folder`: each point
acts once in all processes together (a marker file in the folder says that it did).
"""

from __future__ import annotations

import os
import signal
import threading
import time

_armed: dict[str, tuple[str, int]] = {}
_passed: dict[str, int] = {}


def _parse(text: str) -> dict[str, tuple[str, int]]:
    points = {}
    for item in filter(None, text.split(";")):
        name, _, action = item.partition("=")
        action, _, count = action.partition("@")
        points[name.strip()] = (action.strip(), int(count or 1))
    return points


_armed.update(_parse(os.environ.get("PENSTOCK_FAILPOINTS", "")))


def arm(text: str) -> None:
    """Set the points of this process anew; an empty text disarms them."""
    _armed.clear()
    _passed.clear()
    _armed.update(_parse(text))


def any_armed() -> bool:
    """For places that must do something differently to be able to fail."""
    return bool(_armed)


def fail_point(name: str) -> None:
    """Pass a named place."""
    if _armed and name in _armed:
        _act(name)


def _act(name: str) -> None:
    action, count = _armed[name]
    _passed[name] = _passed.get(name, 0) + 1
    if _passed[name] != count:
        return
    once = os.environ.get("PENSTOCK_FAILPOINTS_ONCE")
    if once:
        try:
            os.close(os.open(os.path.join(once, name.replace(":", "_")), os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        except FileExistsError:
            return
    if action == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
    elif action == "stop":
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # to this thread: it goes no further
    elif action.startswith("sleep"):
        time.sleep(float(action.partition(":")[2] or 1))
    elif action == "raise":
        raise InjectedError(f"fail-point {name}")


class InjectedError(RuntimeError):
    """Raised by a fail-point whose action is `raise`."""
