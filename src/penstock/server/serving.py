"""Runs the application: `penstock serve`, and beside a job, `penstock run --serve`."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field

import uvicorn

from penstock.errors import ConfigError
from penstock.server.app import make_app
from penstock.server.guard.audit import Audit
from penstock.server.guard.connections import protocol_with
from penstock.server.guard.hosts import check_binding
from penstock.server.guard.limits import Limits
from penstock.server.guard.tokens import VARIABLE, Tokens, read_tokens
from penstock.server.served_jobs import ServedJobs, Sources

PORT = 8080
HOST = "127.0.0.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings:
    """How a server runs. `port`: 0 takes a free one. `tokens`: the file; more may be in the environment."""

    sources: Sources
    host: str = HOST
    port: int = PORT
    host_names: tuple[str, ...] = ()
    tokens: str | None = None
    limits: Limits = field(default_factory=Limits)
    audit: str | None = None
    audit_reads: bool = False


class Server:
    """A server in this process: `run` until it is stopped, or `start` it in a thread of its own."""

    def __init__(self, settings: ServerSettings) -> None:
        tokens: Tokens = read_tokens(settings.tokens, os.environ.get(VARIABLE))
        check_binding(settings.host, has_tokens=bool(tokens))
        self._audit = Audit(settings.audit, reads=settings.audit_reads)
        app = make_app(
            ServedJobs(settings.sources),
            tokens=tokens,
            host_names=(settings.host, *settings.host_names),
            limits=settings.limits,
            audit=self._audit,
        )
        config = uvicorn.Config(
            app,
            host=settings.host,
            port=settings.port,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            limit_concurrency=settings.limits.connections,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
            http=protocol_with(settings.limits),
        )
        self._server = uvicorn.Server(config)
        self._socket = config.bind_socket()
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def run(self) -> None:
        """Answer until a signal comes, or `stop`."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._audit.close()
        if not self._server.started:
            raise ConfigError("the server could not start", hint="see the log above")

    def start(self) -> None:
        """Answer in a thread of its own; returns when it does."""
        self._thread = threading.Thread(target=self.run, name="penstock-server", daemon=True)
        self._thread.start()
        while not self._server.started:
            if not self._thread.is_alive():
                raise ConfigError("the server could not start", hint="see the log above")
            time.sleep(0.01)

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(10)
