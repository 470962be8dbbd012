"""The routes, a module for each subject. A new one: a module with `ENDPOINTS`, and its name here."""

from __future__ import annotations

from penstock.server.endpoints import Endpoint
from penstock.server.routes import control, jobs, keys, logs, metrics, sources, subscriptions

ENDPOINTS: tuple[Endpoint, ...] = (
    *jobs.ENDPOINTS,
    *keys.ENDPOINTS,
    *control.ENDPOINTS,
    *subscriptions.ENDPOINTS,
    *sources.ENDPOINTS,
    *metrics.ENDPOINTS,
    *logs.ENDPOINTS,
)
