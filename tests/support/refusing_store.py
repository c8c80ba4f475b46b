"""An S3 that answers every request with one error."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@contextmanager
def refusing_store(code: int) -> Iterator[dict[str, str]]:
    """Environment variables by which clients find a store that answers with an HTTP status: 403 or 503."""
    body = f"<Error><Code>{'AccessDenied' if code == 403 else 'SlowDown'}</Code><Message>no</Message></Error>".encode()

    class Refusal(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.send_response(code)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def log_message(self, *values: object) -> None:
            """Print nothing."""

    for method in ("GET", "HEAD", "PUT", "POST"):
        setattr(Refusal, f"do_{method}", Refusal.answer)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield {
            "AWS_ACCESS_KEY_ID": "tests", "AWS_SECRET_ACCESS_KEY": "tests", "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
    finally:
        server.shutdown()
        server.server_close()
