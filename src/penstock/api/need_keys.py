"""Steps that only keyed streams have: what other streams say when they are asked for one."""

from __future__ import annotations

from typing import Any, NoReturn

from penstock.errors import PlanError


class NeedKeys:
    """Of a stream without keys: each names what is missing."""

    def join(self, *arguments: Any, **options: Any) -> Any:
        """Joins are of keyed streams."""
        _two("join")

    def interval_join(self, *arguments: Any, **options: Any) -> Any:
        """Joins are of keyed streams."""
        _two("interval_join")

    def temporal_join(self, *arguments: Any, **options: Any) -> Any:
        """Joins are of keyed streams."""
        _two("temporal_join")

    def co_group(self, *arguments: Any, **options: Any) -> Any:
        """Co-groups are of keyed streams."""
        _two("co_group")

    def deduplicate(self, *arguments: Any, **options: Any) -> Any:
        """Rows of each key are of keyed streams."""
        _one("deduplicate")

    def top_n(self, *arguments: Any, **options: Any) -> Any:
        """Rows of each key are of keyed streams."""
        _one("top_n")


def _two(what: str) -> NoReturn:
    raise PlanError(f"{what} needs keyed streams", hint=f'key both sides first: a.key_by("id").{what}(b.key_by("id"))')


def _one(what: str) -> NoReturn:
    raise PlanError(f"{what} needs a keyed stream", hint=f'bring the records together first: key_by("id").{what}(...)')
