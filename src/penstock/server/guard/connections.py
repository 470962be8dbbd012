"""Connections that cost something: heads of requests that are slow, or large, end the connection.

uvicorn limits how many connections there are, and how long one is idle between requests; what is missing there is here.
"""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from penstock.server.guard.limits import Limits

_TOO_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
_TOO_SLOW = b"HTTP/1.1 408 Request Timeout\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"


def protocol_with(limits: Limits) -> type[asyncio.Protocol]:
    """The protocol of connections with these limits."""

    class LimitedProtocol(HttpToolsProtocol):
        _timer: asyncio.TimerHandle | None = None
        _in_head = True
        _head_bytes = 0

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._begin()

        def connection_lost(self, exc: Exception | None) -> None:
            self._disarm()
            super().connection_lost(exc)

        def data_received(self, data: bytes) -> None:
            if self._in_head:
                self._head_bytes += len(data)
                if self._head_bytes > limits.head_bytes + limits.body_bytes:
                    self._refuse(_TOO_LARGE)
                    return
            super().data_received(data)
            if self._in_head and self._head_bytes > limits.head_bytes:
                self._refuse(_TOO_LARGE)

        def on_message_begin(self) -> None:
            self._begin()
            super().on_message_begin()

        def on_headers_complete(self) -> None:
            self._in_head = False
            self._disarm()
            super().on_headers_complete()

        def on_message_complete(self) -> None:
            super().on_message_complete()
            self._in_head, self._head_bytes = True, 0

        def _begin(self) -> None:
            self._in_head = True
            self._disarm()
            self._timer = self.loop.call_later(limits.head_s, self._refuse, _TOO_SLOW)

        def _disarm(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _refuse(self, answer: bytes) -> None:
            self._disarm()
            if not self.transport.is_closing():
                self.transport.write(answer)
                self.transport.close()

    return LimitedProtocol
