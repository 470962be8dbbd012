"""What a committer may have to take part when a job goes back to an earlier epoch. Every method may be called again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import msgspec

from penstock.connectors.protocol.sink import Committable
from penstock.ids import Epoch


class OutputSince(msgspec.Struct, frozen=True):
    """What a sink has published since some epoch, and readers still see; None: not known.

    `newest`: the newest epoch that it knows of at all. `obstacle`: why its output cannot be taken back, if so."""

    newest: Epoch | None = None
    epochs: int | None = None
    records: int | None = None
    obstacle: str = ""


@runtime_checkable
class TellsPublished(Protocol):
    """A committer that can say what it has published."""

    def published_after(self, epoch: Epoch) -> OutputSince: ...


@runtime_checkable
class KnowsPlaces(Protocol):
    """A committer that can tell output of its own place from output that was published while the sink wrote to another."""

    def elsewhere(self, committables: Sequence[Committable]) -> dict[str, int]:
        """The other places that an epoch's output was published to, with the number of records."""
        ...


@runtime_checkable
class RollsBack(TellsPublished, Protocol):
    """A committer that can take back what it published, when the job goes back to an earlier epoch.

    Called after the take-over epoch `at` is committed, and again if it is not known to have ended well. From then on nothing of
    an epoch below `at` is published. `to` is 0 when the job begins anew.
    """

    def roll_back(self, to: Epoch, at: Epoch) -> None:
        """Show what was published when `to` was the newest epoch (of its line, if the job went back before)."""


@runtime_checkable
class Repairs(RollsBack, Protocol):
    """A committer that can keep the old output visible until the new one has caught up, and then replace it at once."""

    def begin_repair(self, to: Epoch, at: Epoch) -> None:
        """Like `roll_back`, but nobody sees it yet: what is committed from now on is held back."""

    def repairing(self) -> bool:
        """Is output held back?"""

    def finish_repair(self, at: Epoch) -> None:
        """Show what was held back, instead of what is shown. `at`: the newest epoch committed."""


@runtime_checkable
class Fences(Protocol):
    """A committer that cannot take output back, but can make sure that nothing of an epoch below `at` is published any more."""

    def fence(self, at: Epoch) -> None: ...
