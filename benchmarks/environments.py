"""The virtual environments of the contenders: made once, pinned, one for each group that cannot share.

tokenmill is installed from this checkout, without and with `datasets`: what else is installed decides what is imported.
"""

from __future__ import annotations

import json
import subprocess
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
OURS = ("gigatoken==0.10.0", "numpy==2.4.6", "pyarrow==26.0.1", "tiktoken==0.14.0", "tokenizers==0.23.3")
ENVIRONMENTS: dict[str, tuple[str, ...]] = {
    "tokenmill": OURS,
    "scripts": (*OURS, "datasets==5.2.0"),
    "ray": (*OURS, "ray==2.60.0"),
    "plain": (
        "datasets==5.2.0",
        "gigatoken==0.10.0",
        "numpy==2.4.6",
        "pyarrow==26.0.1",
        "tiktoken==0.14.0",
        "tokenizers==0.23.3",
    ),
    "datatrove": ("datatrove==0.10.1", "orjson==3.13.0", "pyarrow==26.0.1", "tokenizers==0.23.3"),
    "litdata": ("litdata==0.2.76", "pyarrow==26.0.1", "tiktoken==0.14.0", "torch==2.13.0"),
    "streaming": ("mosaicml-streaming==0.13.0", "pyarrow==26.0.1", "tiktoken==0.14.0", "torch==2.13.0"),
    # Its s3fs wants a botocore of 2023; left to itself, pip tries every boto3 since, for many minutes.
    "dolma": ("dolma==1.2.1", "aiobotocore==2.5.4", "boto3==1.28.17", "botocore==1.31.17", "fsspec==2023.6.0"),
}
VERSIONS = """
import importlib.metadata, json, sys
found = {}
for name in sys.argv[1:]:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


class EnvironmentMissingError(Exception):
    """Why an environment could not be made."""


def python_of(group: str, folder: Path) -> Path:
    """The interpreter of a group; its environment is made if it is not there, or of other versions."""
    place = folder / f".venv-bench-{group}"
    python, ready = place / "bin/python", place / "ready"
    wanted = "\n".join(ENVIRONMENTS[group])
    if ready.exists() and ready.read_text() == wanted:
        return python
    venv.create(place, with_pip=True, clear=True)
    this = ["--editable", str(ROOT)] if ENVIRONMENTS[group][: len(OURS)] == OURS else []
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run([*install, *ENVIRONMENTS[group], *this], capture_output=True, text=True)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error" in line.lower()] or done.stderr.splitlines()
        raise EnvironmentMissingError(f"cannot be installed: {' '.join(errors[-2:])}")
    ready.write_text(wanted)
    return python


def versions(group: str, python: Path) -> dict[str, str]:
    """The versions in an environment of what was asked for."""
    names = [requirement.split("==")[0] for requirement in ENVIRONMENTS[group]]
    found = subprocess.run([python, "-c", VERSIONS, "tokenmill", *names], capture_output=True, text=True, check=True)
    versions: dict[str, str] = json.loads(found.stdout)
    return versions
