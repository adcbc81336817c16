"""Files behind plain HTTP addresses, by servers of every kind: with ranges and without, with wrong lengths, signed."""

import re
import threading
from urllib.parse import parse_qs, unquote, urlsplit

from wire import Faults, Handler, Request, Server


class WebServer:
    """A web server as a context manager. `files` are by path; `secret` must be in the query where it is set."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.secret: str | None = None
        self.ranges = self.etags = True
        self.said_bytes: int | None = None  # another length than the true one, in answers to ranges
        self.redirects: dict[str, str] = {}
        self.requests: list[Request] = []
        self.faults = Faults()
        self.lock = threading.Lock()

    def __enter__(self) -> "WebServer":
        self.server = Server(WebHandler, self)
        self.endpoint = self.server.endpoint
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()


class WebHandler(Handler):
    def answer(self) -> None:
        web, address = self.server.owner, urlsplit(self.path)
        path, query = unquote(address.path), parse_qs(address.query)
        if web.secret is not None and query.get("X-Amz-Signature") != [web.secret]:
            self.send(403, f"<Error>{self.path} is not signed</Error>".encode())
        elif path in web.redirects:
            self.send(302, b"", {"Location": web.redirects[path]})
        elif path not in web.files:
            self.send(404, b"nothing here")
        else:
            self.send_file(web, web.files[path])

    def send_file(self, web: WebServer, data: bytes) -> None:
        headers = {"ETag": f'"{hash(data):x}"'} if web.etags else {}
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if not web.ranges or not asked:
            self.send(200, data, headers)
            return
        start, stop = int(asked[1]), min(int(asked[2] or len(data)) + 1, len(data))
        total = len(data) if web.said_bytes is None else web.said_bytes
        if start >= stop:
            self.send(416, b"", {"Content-Range": f"bytes */{total}"})
        else:
            self.send(206, data[start:stop], {**headers, "Content-Range": f"bytes {start}-{stop - 1}/{total}"})
