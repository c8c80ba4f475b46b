"""A server that speaks S3, on this machine, with faults at a test's wish: moto's application behind one that fails."""

from __future__ import annotations

import logging
import re
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

BUCKET = "bucket"
Respond = Callable[..., Any]


class Faults:
    """What goes wrong with requests of a server; as made, nothing does."""

    def __init__(self) -> None:
        self.slow_every = 0
        """Of so many requests the last is answered by 503 SlowDown."""
        self.cut_every = 0
        """Of so many answers to GET the last ends in the middle."""
        self.refused_parts: set[str] = set()
        """Numbers of parts of uploads that are answered by 503, however often."""
        self.refuses_ends = False
        """Uploads in parts are refused at their end."""
        self.ignores_conditions = False
        self.forbids = False
        self.lost_answers = 0
        """So many conditional puts are carried out, and answered by 500."""
        self.late_answers = 0
        """So many conditional puts are carried out, and answered half a second later."""


class S3Server:
    """Requests are served by threads; conditional puts one after the other, which moto alone would not promise."""

    def __init__(self) -> None:
        self.faults = Faults()
        self.requests: list[str] = []
        """Method, path and query of each."""
        self._app = DomainDispatcherApplication(create_backend_app)
        self._lock, self._counts = threading.Lock(), {"all": 0, "get": 0}
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._ask("PUT", f"/{BUCKET}")

    def objects(self, prefix: str) -> list[str]:
        """Keys of the bucket, by the server's own word."""
        return re.findall("<Key>(.*?)</Key>", self._ask("GET", f"/{BUCKET}?list-type=2&prefix={prefix}"))

    def uploads(self, prefix: str) -> list[str]:
        """Keys of uploads that neither ended nor were aborted."""
        return re.findall("<Key>(.*?)</Key>", self._ask("GET", f"/{BUCKET}?uploads&prefix={prefix}"))

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _ask(self, method: str, path: str) -> str:
        request = urllib.request.Request(f"{self.url}{path}", method=method, headers={"x-test": "1"})
        with urllib.request.urlopen(request) as answer:
            return str(answer.read().decode())

    def _answer(self, environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        if "HTTP_X_TEST" in environ:
            return self._app(environ, respond)
        faults, method = self.faults, environ["REQUEST_METHOD"]
        request = f"{method} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        part = re.search(r"partNumber=(\d+)", request)
        with self._lock:
            self.requests.append(request)
        if faults.forbids or (faults.refuses_ends and method == "POST" and "uploadId=" in request):
            return _error(environ, respond, "403 Forbidden", "AccessDenied")
        if self._due("all", faults.slow_every) or (part and part[1] in faults.refused_parts):
            return _error(environ, respond, "503 Service Unavailable", "SlowDown")
        if "HTTP_IF_NONE_MATCH" in environ:
            return self._put_first(environ, respond)
        if method == "GET" and "list-type" not in request and self._due("get", faults.cut_every):
            return [b"".join(self._app(environ, respond))[:-1]]
        return self._app(environ, respond)

    def _put_first(self, environ: dict[str, Any], respond: Respond) -> Iterable[bytes]:
        if self.faults.ignores_conditions:
            del environ["HTTP_IF_NONE_MATCH"]
        faults = self.faults
        with self._lock:
            lost, faults.lost_answers = faults.lost_answers > 0, max(0, faults.lost_answers - 1)
            late, faults.late_answers = faults.late_answers > 0, max(0, faults.late_answers - 1)
            answer = b"".join(self._app(environ, _unheard if lost else respond))
        time.sleep(0.5 * late)
        return _error({}, respond, "500 Internal Server Error", "InternalError") if lost else [answer]

    def _due(self, what: str, every: int) -> bool:
        with self._lock:
            self._counts[what] += 1
            return every > 0 and self._counts[what] % every == 0


def _error(environ: dict[str, Any], respond: Respond, status: str, code: str) -> Iterable[bytes]:
    if "wsgi.input" in environ:  # a body that is not read is a lost connection to the client
        environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    body = f"<Error><Code>{code}</Code><Message>by the test</Message></Error>".encode()
    respond(status, [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _unheard(*_: Any) -> None:
    """Respond to nobody."""
