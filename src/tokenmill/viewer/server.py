"""The door of the viewer: HTTP on the loopback, for whoever has the address, and for no other site.

    GET /TOKEN/            the page
    GET /TOKEN/app.js      its files, from a fixed list
    GET /TOKEN/api/NAME?…  JSON

The token is new every time. Host must be the loopback's, which stops names of other sites that lead here; Origin, if
there is one, must be ours. Nothing can be written.
"""

from __future__ import annotations

import hmac
import secrets
import socketserver
import sys
import traceback
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from tokenmill.errors import TokenmillError

LOOPBACK = "127.0.0.1"
NAMES = (LOOPBACK, "localhost")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
}
PAGE = (
    "index.html",
    "style.css",
    "app.js",
    "api.js",
    "tokens.js",
    "document.js",
    "jump.js",
    "search.js",
    "lengths.js",
    "compare.js",
)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
    " img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}

Answer = Callable[[str, dict[str, str]], Any]


class AskedWronglyError(Exception):
    """A question that makes no sense: a number that is none, a name that nobody has."""


class ViewServer(ThreadingHTTPServer):
    """Serves one page and the answers to its questions."""

    daemon_threads = True

    def __init__(self, answer: Answer, port: int = 0) -> None:
        self.answer = answer
        self.token = secrets.token_urlsafe(24)
        super().__init__((LOOPBACK, port), Handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's own asks for the name of the host, which may take long
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.server_port}/{self.token}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a browser that went away is none
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    server: ViewServer
    protocol_version = "HTTP/1.1"
    timeout = 60  # a connection that asks nothing for so long is closed

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        token, _, name = url.path.removeprefix("/").partition("/")
        if not self.is_welcome(token):
            self.send(403, b"Forbidden: open the address that `tokenmill view` prints.\n", "text/plain; charset=utf-8")
        elif url.path == f"/{self.server.token}":
            self.send(301, b"", "text/plain", {"Location": f"/{self.server.token}/"})
        elif (name or "index.html") in PAGE:
            self.send_page(name or "index.html")
        elif name.startswith("api/"):
            self.send_answer(name.removeprefix("api/"), dict(parse_qsl(url.query, keep_blank_values=True)))
        else:
            self.send(404, b"Not found.\n", "text/plain; charset=utf-8")

    def is_welcome(self, token: str) -> bool:
        host = self.headers.get("Host", "")
        if host.rpartition(":")[0] not in NAMES or not host.rpartition(":")[2].isdecimal():
            return False
        if self.headers.get("Origin", f"http://{host}") != f"http://{host}":
            return False
        if "/api/" in self.path and self.headers.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
            return False
        return hmac.compare_digest(token.encode(), self.server.token.encode())

    def send_page(self, name: str) -> None:
        data = files("tokenmill.viewer").joinpath("page", name).read_bytes()
        self.send(200, data, TYPES[name[name.rindex(".") :]])

    def send_answer(self, name: str, query: dict[str, str]) -> None:
        status = 200
        try:
            content = self.server.answer(name, query)
        except AskedWronglyError as error:
            status, content = 400, {"error": str(error)}
        except TokenmillError as error:
            status, content = 409, {"error": error.message, "hint": error.hint}
        except Exception:
            traceback.print_exc()
            status, content = 500, {"error": "this is a bug in tokenmill; what went wrong is in the terminal"}
        self.send(status, msgspec.json.encode(content), "application/json")

    def send(self, status: int, data: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **(more or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def version_string(self) -> str:
        return "tokenmill"

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing: the terminal is for errors."""
