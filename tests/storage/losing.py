"""An S3 server that does what it is asked to, and now and then does not say so: its reply is lost, or says 500."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server


class LosesReplies:
    """A WSGI application around another: `share` of the replies are lost, half of them by an error of the server."""

    def __init__(self, inner: Callable[..., Iterable[bytes]], seed: int) -> None:
        self._inner = inner
        self._chance = random.Random(seed)
        self.share = 0.0
        self.lost: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        replies: list[tuple[Any, ...]] = []
        body = b"".join(self._inner(environ, lambda *reply: replies.append(reply)))
        if self._chance.random() >= self.share:
            start_response(*replies[0])
            return [body]
        self.lost.append(f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}")
        if self._chance.random() < 0.5:
            start_response("500 Internal Server Error", [])
        else:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start_response("200 OK", [])
        return []


@contextmanager
def losing_server(seed: int) -> Iterator[tuple[str, LosesReplies]]:
    """The endpoint; one request at a time, as moto's conditional put checks, then writes."""
    application = LosesReplies(DomainDispatcherApplication(create_backend_app), seed)
    server = make_server("127.0.0.1", 0, application, threaded=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", application
    finally:
        application.share = 0.0
        server.shutdown()
        thread.join()
        server.server_close()
