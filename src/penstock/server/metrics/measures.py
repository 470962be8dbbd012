"""What a server counts of its own work: requests, by route and outcome, and how long they took."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)


class Measures:
    """Of one server. Labels are names of routes, so there are only so many."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=False)
        self._seconds = Histogram(
            "penstock_request_seconds", "How long requests took, by route.", ["route"], buckets=_BUCKETS, registry=self.registry
        )
        self._requests = Counter(
            "penstock_requests", "Requests, by route and status.", ["route", "status"], registry=self.registry
        )

    def note(self, route: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self._seconds.labels(route).observe(seconds)
        self._requests.labels(route, str(status)).inc()
