"""Which names the server answers to: a browser that was led here by another name, or by another page, gets nothing."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from urllib.parse import urlsplit

from penstock.errors import ConfigError
from penstock.query.errors import ForbiddenError

LOOPBACK_NAMES = frozenset(("localhost", "127.0.0.1", "::1"))


def is_loopback(host: str) -> bool:
    """Is an address, or name, this host alone?"""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_binding(host: str, *, has_tokens: bool) -> None:
    """Refuse to listen where others can reach the server, if it asks for no token."""
    if not is_loopback(host) and not has_tokens:
        raise ConfigError(
            f"the server would listen on {host} and answer whoever reaches it",
            hint="give tokens, with --tokens FILE; or listen on 127.0.0.1",
        )


class Hosts:
    """The names in `Host` that are ours."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = LOOPBACK_NAMES | {name.lower() for name in names}

    def check(self, host: str | None, origin: str | None, fetch_site: str | None) -> None:
        """Refuse a request that was meant for another host, or that another site's page sends."""
        if host is None or _name(host) not in self._names:
            raise ForbiddenError("this server does not have the name that was asked for", hint="add it with --host-name NAME")
        if origin is not None and origin.lower() not in (f"http://{host.lower()}", f"https://{host.lower()}"):
            raise ForbiddenError("requests of other sites' pages are refused")
        if fetch_site is not None and fetch_site not in ("same-origin", "none"):
            raise ForbiddenError("requests of other sites' pages are refused")


def _name(host: str) -> str | None:
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None
