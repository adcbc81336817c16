"""The batch file of docs/clusters.md under a real Slurm: an array of shares, and a job behind it that finishes."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

sys.path.append(str(Path(__file__).parent))
sys.path.append(str(Path(__file__).parents[1] / "faults"))

from cluster import PROGRAMS, Cluster, path_of, wait_until
from harness import digests, texts

import tokenmill
from tokenmill.journal import read_state
from tokenmill.lock import read_holder

BATCH_FILE = Path(__file__).parents[2] / "docs" / "tokenmill.sbatch"
SHARE = Path("tokens", ".work", "shares", "2-of-3")
# Twelve units or so: the smallest has 4 MB of text.
N_FILES, N_DOCUMENTS, MEAN_WORDS = 3, 4000, 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    missing = [name for name in PROGRAMS if path_of(name) is None]
    assert not missing, f"{', '.join(missing)}: not found; `make test-slurm` says what is needed"
    command = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    made = Cluster(tmp_path_factory.mktemp("slurm"), {"PATH": command})
    try:
        made.start()
        yield made
    finally:
        made.stop()


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    """A folder with `crawl/*.parquet`, as the batch file reads it."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "crawl").mkdir()
    for i in range(N_FILES):
        table = pa.table({"text": texts(N_DOCUMENTS, seed=i, mean_words=MEAN_WORDS)})
        pq.write_table(table, folder / "crawl" / f"{i}.parquet", row_group_size=200)
    return folder


@pytest.fixture(scope="module")
def expected(corpus) -> dict[str, str]:
    """What the command of the batch file gives without Slurm."""
    command = BATCH_FILE.read_text().rpartition("exec ")[2].replace("$share", "").replace("-o tokens", "-o plain")
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment["SLURM_CPUS_PER_TASK"] = "2"
    subprocess.run(["bash", "-c", command], cwd=corpus, env=environment, check=True, capture_output=True)
    return digests(corpus / "plain")


@pytest.fixture
def folder(corpus):
    """Where jobs are submitted, without an output of an earlier test."""
    shutil.rmtree(corpus / "tokens", ignore_errors=True)
    for log in corpus.glob("*.log"):
        log.unlink()
    shutil.copy(BATCH_FILE, corpus)
    return corpus


def logs(folder: Path) -> str:
    return "\n".join(path.read_text(errors="replace") for path in sorted(folder.glob("tokenmill-*.log")))


def pid_at_work(folder: Path, cluster: Cluster) -> int:
    """The process of the second share, when it has done something."""
    wait_until(lambda: read_state(folder / SHARE / "journal").units, "share 2/3", cluster.log)
    return read_holder(folder / SHARE / "lock").pid


def test_an_array_and_a_job_that_depends_on_it_give_the_bytes_of_one_run(cluster, folder, expected):
    shares = cluster.submit(folder, "--array=1-3", "tokenmill.sbatch")
    last = cluster.submit(folder, f"--dependency=afterok:{shares}", "tokenmill.sbatch")
    assert cluster.wait(shares) == ["COMPLETED"] * 3, logs(folder)
    assert cluster.wait(last) == ["COMPLETED"], logs(folder)
    assert digests(folder / "tokens") == expected
    run = tokenmill.open_shards(folder / "tokens").manifest.run
    assert run.n_units_resumed == run.n_units >= 6
    assert all(f"Encoded share {i}/3" in logs(folder) for i in (1, 2, 3))


def test_a_cancelled_task_goes_on_when_the_array_is_submitted_again(cluster, folder, expected):
    shares = cluster.submit(folder, "--array=1-3", "tokenmill.sbatch")
    never = cluster.submit(folder, f"--dependency=afterok:{shares}", "tokenmill.sbatch")
    os.kill(pid_at_work(folder, cluster), signal.SIGSTOP)  # so that it is not done before it is cancelled
    cluster.run("scancel", f"{shares}_2")
    assert cluster.wait(shares) == ["CANCELLED", "COMPLETED", "COMPLETED"], logs(folder)
    assert not (folder / "tokens" / "manifest.json").exists()
    wait_until(lambda: cluster.jobs(never)[0]["Reason"] == "DependencyNeverSatisfied", "the dependency", cluster.log)
    cluster.run("scancel", never)

    again = cluster.submit(folder, "--array=1-3", "tokenmill.sbatch")
    last = cluster.submit(folder, f"--dependency=afterok:{again}", "tokenmill.sbatch")
    assert cluster.wait(again) == ["COMPLETED"] * 3, logs(folder)
    assert cluster.wait(last) == ["COMPLETED"], logs(folder)
    assert digests(folder / "tokens") == expected
    assert "stopped by SIGTERM; what is done is kept" in logs(folder)
    assert re.search(r"resumed    [123] of 4 units were done before", logs(folder))


def test_what_a_killed_task_left_is_encoded_by_a_job_that_does_not_ask(cluster, folder, expected):
    shares = cluster.submit(folder, "--array=1-3", "tokenmill.sbatch")
    last = cluster.submit(folder, f"--dependency=afterany:{shares}", "tokenmill.sbatch")
    os.kill(pid_at_work(folder, cluster), signal.SIGKILL)  # as a machine without memory does
    assert cluster.wait(shares) == ["COMPLETED", "COMPLETED", "FAILED"], logs(folder)
    assert cluster.wait(last) == ["COMPLETED"], logs(folder)
    assert digests(folder / "tokens") == expected
    run = tokenmill.open_shards(folder / "tokens").manifest.run
    assert 8 < run.n_units_resumed < run.n_units == 12
