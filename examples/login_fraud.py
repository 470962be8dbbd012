"""Three failed logins, then a success from another country within ten minutes, and no password reset in between."""

from __future__ import annotations

from typing import Any

from penstock import Pattern, SkipStrategy, StreamEnvironment, Watermarks, col

Login = dict[str, Any]


def login(user: str, minute: float, what: str, country: str = "AT") -> Login:
    return {"user": user, "time": int(minute * 60_000), "what": what, "country": country}


LOGINS = [
    *(login("ann", minute, "failed") for minute in (0, 1, 2)),
    login("ann", 4, "success", "BR"),
    *(login("bob", minute, "failed") for minute in (0, 1, 2)),
    login("bob", 3, "reset"),
    login("bob", 4, "success", "BR"),
    *(login("cy", minute, "failed") for minute in (0, 1, 20)),
    login("cy", 21, "success", "BR"),
]

STOLEN = (
    Pattern.begin("failed", SkipStrategy.past_last_event())
    .where(col("what") == "failed")
    .times(3)
    .not_followed_by("reset")
    .where(col("what") == "reset")
    .followed_by("success")
    .where(col("what") == "success")
    .where(lambda event, match: event["country"] != match.events("failed")[0]["country"])
    .within(minutes=10)
)


def main() -> None:
    env = StreamEnvironment("login-fraud", executor="inline", parallelism=2)
    logins = env.from_collection(LOGINS, watermarks=Watermarks.bounded(seconds=60, timestamp="time"))
    alerts = (
        logins.key_by("user")
        .pattern(STOLEN)
        .select(
            lambda match: (
                f"{match['success'][0]['user']}: {len(match['failed'])} failures in {match['failed'][0]['country']}, "
                f"then a success in {match['success'][0]['country']}"
            ),
            name="stolen",
        )
    )
    for alert in alerts.execute_and_collect():
        print(alert)


if __name__ == "__main__":
    main()
