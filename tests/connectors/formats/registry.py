"""A schema registry as small as can be, with Confluent's interface, in this process."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


class RegistryServer:
    """`schemas`: by id, from 1. `down`: it answers with an error."""

    def __init__(self) -> None:
        self.schemas: list[dict[str, str]] = []
        self.asked = 0
        self.down = False
        self.authorization: str | None = None
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked += 1
                registry.authorization = self.headers.get("Authorization")
                id = int(self.path.rpartition("/")[2])
                if registry.down:
                    self._answer(503, {"message": "down"})
                elif 1 <= id <= len(registry.schemas):
                    self._answer(200, registry.schemas[id - 1])
                else:
                    self._answer(404, {"error_code": 40403, "message": "Schema not found"})

            def do_POST(self) -> None:
                registry.asked += 1
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body.pop("schemaType", None)
                if body not in registry.schemas:
                    registry.schemas.append(body)
                self._answer(200, {"id": registry.schemas.index(body) + 1})

            def log_message(self, *args: object) -> None:
                return

            def _answer(self, code: int, body: object) -> None:
                data = json.dumps(body).encode()
                self.send_response(code)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> RegistryServer:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
