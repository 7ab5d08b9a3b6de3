"""Somebody who asked to be told: an HTTP server on loopback that writes down what it gets and answers as it is told."""

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Answer = int | Callable[[], int]


@dataclass(frozen=True)
class Call:
    """One request."""

    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def told(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.content)
        return found


class Receiver:
    """Answers with the statuses given, then with 204; a callable may take its time before it says which."""

    def __init__(self, *answers: Answer) -> None:
        self.answers, self.calls = list(answers), list[Call]()
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                content = self.rfile.read(int(self.headers["content-length"]))
                names = {name.lower(): value for name, value in self.headers.items()}
                receiver.calls.append(Call(self.path, names, content))
                answer = receiver.answers.pop(0) if receiver.answers else 204
                status = answer() if callable(answer) else answer
                self.send_response(status)
                self.send_header("set-cookie", "crumb=1")
                self.send_header("location", "/elsewhere")
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nobody reads it."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook?of=shop"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()
