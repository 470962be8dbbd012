"""Rules that change while the job runs: patterns as JSON on a broadcast stream, added, changed and removed by id."""

from __future__ import annotations

import json
from typing import Any

from penstock import OutputTag, Pattern, StreamEnvironment, Watermarks, col
from penstock.cep import RejectedRule, RuleMatch

Payment = dict[str, Any]


def small_then(amount: int) -> Any:
    """A payment below 1, and then one above the amount, within a minute."""
    pattern = Pattern.begin("small").where(col("amount") < 1).followed_by("big").where(col("amount") > amount)
    return json.loads(pattern.within(seconds=60).to_json())


PAYMENTS = [
    {"card": "c1", "second": second, "amount": amount} for second, amount in enumerate([0.5, 80, 0.7, 80, 0.9, 300, 0.1, 900])
]
RULES = [
    {"second": -1, "rule": {"rule": "testing", "pattern": small_then(50)}},
    {"second": 2, "rule": {"rule": "testing", "version": 2, "pattern": small_then(100), "on_change": "drop"}},
    {"second": 4, "rule": {"rule": "typo", "pattern": {"stages": []}}},
    {"second": 6, "rule": {"rule": "testing", "remove": True}},
]
REJECTED = OutputTag[RejectedRule]("rejected")


def alert_of(match: RuleMatch[Payment]) -> str:
    small, big = (match.events[stage][0]["amount"] for stage in ("small", "big"))
    return f"{match.rule} {match.version}: {small}, then {big}"


def main() -> None:
    env = StreamEnvironment("dynamic-rules", executor="inline", parallelism=2)
    times = Watermarks[Any].bounded(seconds=0, timestamp=lambda one: one["second"] * 1000)
    rules = env.from_collection(RULES, watermarks=times, name="rules").map(lambda one: one["rule"])
    payments = env.from_collection(PAYMENTS, watermarks=times, name="payments")
    alerts = payments.key_by("card").patterns(rules, rejected=REJECTED).select(alert_of, name="rules-at-work")
    alerts.print()
    alerts.side_output(REJECTED).map(lambda rule: rule.error).print("rejected")
    env.execute()


if __name__ == "__main__":
    main()
