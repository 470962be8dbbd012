"""What a script expects, against what came out."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


class NotBuiltError(Exception):
    """What the script needs is not there; the text is the reason."""


class ExpectationError(AssertionError):
    """The operator did something else than the script expects."""


def compare(expected: list[dict[str, Any]], events: list[Any], order: str, *, ignore_watermarks: bool = False) -> None:
    wanted = [item for item in expected if not (ignore_watermarks and "watermark" in item)]
    if order == "any":
        wanted, events = sorted_between(wanted, is_watermark_item), sorted_between(events, lambda e: not isinstance(e, tuple))
    if len(wanted) != len(events) or not all(matches(item, event) for item, event in zip(wanted, events, strict=True)):
        raise ExpectationError(f"expected {wanted}, got {events}")


def compare_panes(expected: list[dict[str, Any]], events: list[Any]) -> None:
    """Every expected pane matches one of those that came, on the keys it has; none is left over."""
    left = [{**value, "ts": time} for value, time in events]
    for item in expected:
        wanted = {**item, "pane": {name: said for name, said in item.get("pane", {}).items() if name != "final"}}
        found = next((pane for pane in left if has(pane, wanted)), None)
        if found is None:
            raise ExpectationError(f"expected {item} among {left}")
        left.remove(found)
    if left:
        raise ExpectationError(f"nobody expected {left}")


def has(found: dict[str, Any], wanted: dict[str, Any]) -> bool:
    return all(has(found[name], said) if name == "pane" else plain(found[name]) == said for name, said in wanted.items())


def is_watermark_item(item: Any) -> bool:
    return "watermark" in item


def sorted_between(items: list[Any], is_watermark: Callable[[Any], bool]) -> list[Any]:
    """The records between two watermarks in one order."""
    out: list[Any] = []
    run: list[Any] = []
    for item in items:
        if is_watermark(item):
            out += [*sorted(run, key=record_order), item]
            run = []
        else:
            run.append(item)
    return out + sorted(run, key=record_order)


def record_order(item: Any) -> str:
    value, time = (item.get("value"), item.get("ts")) if isinstance(item, dict) else item
    return json.dumps([value, time], sort_keys=True, default=list)


def matches(item: dict[str, Any], event: Any) -> bool:
    if "watermark" in item:
        return not isinstance(event, tuple) and bool(event == item["watermark"])
    if not isinstance(event, tuple):
        return False
    return ("value" not in item or plain(event[0]) == item["value"]) and ("ts" not in item or event[1] == item["ts"])


def plain(value: Any) -> Any:
    return json.loads(json.dumps(value, default=list))


def compare_number(expected: Any, found: int, what: str) -> None:
    right = found > expected["gt"] if isinstance(expected, dict) else found == expected
    if not right:
        raise ExpectationError(f"expected {expected} {what}, got {found}")
