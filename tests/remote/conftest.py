"""The servers that stand in for the Hub and for S3, one of each for a test."""

import os
import sys
import time
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from hub_server import HubServer
from journeys import CLIENTS, Forks, Journey
from proxy import FaultProxy
from s3_server import S3Server


def pytest_configure(config):
    # The Hub's client uploads with an argument that its HTTP library has renamed.
    config.addinivalue_line("filterwarnings", "ignore:Use 'content=:DeprecationWarning")


@pytest.fixture(autouse=True)
def _no_login_and_no_cache(monkeypatch, tmp_path_factory):
    """Nothing of whoever runs the tests: no token, no cache, no object store, no proxy; and no Xet, see hub_server."""
    import huggingface_hub.constants as constants

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    home = tmp_path_factory.mktemp("hf")
    for name, value in {"HF_HOME": home, "HF_HUB_CACHE": home / "hub", "HF_TOKEN_PATH": home / "token"}.items():
        monkeypatch.setenv(name, str(value))
        monkeypatch.setattr(constants, name, str(value))
    monkeypatch.setattr("huggingface_hub.utils._detect_agent._registry", {})  # which it would ask the real Hub for
    monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)


@pytest.fixture
def hub():
    with HubServer() as server:
        yield server


@pytest.fixture
def as_the_hub(hub, monkeypatch):
    """Make `hub` the Hub of this process and of those it starts, logged in as the owner."""
    import huggingface_hub.constants as constants

    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace(constants.ENDPOINT, hub.endpoint)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
    for name, value in hub.environment.items():
        monkeypatch.setenv(name, value)
    return hub


@pytest.fixture(scope="session")
def s3_process():
    with S3Server() as server:
        yield server


@pytest.fixture
def s3(s3_process):
    """The S3 server of this session with an empty bucket `bucket`."""
    import shutil

    if (s3_process.folder / "bucket").exists():
        shutil.rmtree(s3_process.folder / "bucket")
        time.sleep(0.15)  # until the server has forgotten what was in it
    s3_process.add_bucket("bucket")
    return s3_process


@pytest.fixture
def proxy(s3):
    """A proxy in front of `s3`, with the conditions of S3 on puts."""
    with FaultProxy(s3.rclone_endpoint, etag_of=s3.etag_of) as server:
        yield server


@pytest.fixture(scope="session")
def forks(tmp_path_factory):
    """Starts processes that have tokenmill imported already."""
    server = Forks(tmp_path_factory.mktemp("forks"), *CLIENTS)
    yield server
    server.close()


@pytest.fixture
def journey(forks, hub, s3, tmp_path):
    """From the Hub, logged in, to the S3 server."""
    env = {**hub.environment, **s3.environment, "TOKENMILL_SCRATCH": str(tmp_path / "scratch")}
    env |= {name: os.environ[name] for name in ("HF_HOME", "HF_HUB_CACHE", "HF_TOKEN_PATH")}
    return Journey(forks, tmp_path / "scratch", s3.folder / "bucket", env)


@pytest.fixture
def in_this_process(journey, as_the_hub, monkeypatch):
    """The world of `journey` for this very process; `use` names another S3 endpoint."""
    from tokenmill.storage import lease, objects, remote

    for name, value in journey.env.items():
        monkeypatch.setenv(name, value)
    for module, name, value in (
        (remote, "FIRST_WAIT_SECONDS", 0.01),
        (remote, "MAX_WAIT_SECONDS", 0.1),
        (lease, "SETTLE_SECONDS", 0.05),
    ):
        monkeypatch.setattr(module, name, value)

    def use(endpoint: str) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        journey.env["AWS_ENDPOINT_URL"] = endpoint
        objects.bucket.cache_clear()

    objects.bucket.cache_clear()
    yield use
    objects.bucket.cache_clear()
