"""A Ray cluster of several nodes on this machine, one for all tests, and a corpus of many units."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "remote"))

from s3_server import S3Server

from tokenmill.sources.catalog import CATALOG

# Before Ray is imported: sessions of these tests are nobody else's business, and report to nobody.
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0"}


def pytest_configure(config):
    for warning in (
        "DeprecationWarning",
        "ResourceWarning",
        "FutureWarning",
        "pytest.PytestUnraisableExceptionWarning",
    ):
        config.addinivalue_line("filterwarnings", f"ignore::{warning}")


@pytest.fixture(scope="session")
def s3():
    """A real S3 server; its variables are set before the nodes start, which inherit them."""
    with S3Server() as server:
        server.add_bucket("bucket")
        os.environ |= server.environment
        yield server


@pytest.fixture(scope="session")
def cluster(s3):
    """Three nodes of one CPU each, below a head that has none."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    for _ in range(3):
        cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster
    cluster.shutdown()


@pytest.fixture
def three_nodes(cluster):
    """The cluster with three nodes again, whatever a test before did to it."""
    while len(cluster.worker_nodes) < 3:
        cluster.add_node(num_cpus=1)
    while len(cluster.worker_nodes) > 3:
        cluster.remove_node(next(iter(cluster.worker_nodes)))
    cluster.wait_for_nodes()
    return cluster


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    """The sample as JSON lines in three files, which can be cut anywhere."""
    folder = tmp_path_factory.mktemp("corpus")
    texts = pq.read_table(CATALOG["sample"], columns=["text"]).column("text").to_pylist()
    for i in range(3):
        lines = [json.dumps({"text": text}) for text in texts[i::3]]
        (folder / f"{i}.jsonl").write_text("\n".join(lines) + "\n")
    return folder
