"""What people write to name a snapshot: a savepoint's folder, `JOB@EPOCH`, `JOB@latest`, or `latest`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from penstock.errors import ConfigError
from penstock.ids import Epoch

_JOB_EPOCH = re.compile(r"(?P<job>.*)@(?P<epoch>\d+|latest)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Reference:
    """A snapshot by name. `place`: the savepoint's or the job's storage, empty for the own one; `epoch`: None for the newest."""

    kind: Literal["savepoint", "epoch", "latest"]
    place: str = ""
    epoch: Epoch | None = None


def parse_reference(text: str) -> Reference:
    """
    >>> parse_reference("jobs/rooms@57")
    Reference(kind='epoch', place='jobs/rooms', epoch=57)
    """
    if not text.strip():
        raise ConfigError("the snapshot to start from has no name", hint="give a savepoint's folder, JOB@EPOCH, or latest")
    if text == "latest":
        return Reference("latest")
    match = _JOB_EPOCH.fullmatch(text)
    if match is None:
        return Reference("savepoint", text)
    return Reference("epoch", match["job"], None if match["epoch"] == "latest" else Epoch(int(match["epoch"])))
