"""Runs between the stand-in Hub and the S3 server, as real processes, and what they give and leave."""

import hashlib
import json
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.append(str(Path(__file__).parents[1] / "faults"))

from harness import Ended, Forks, Run, start_cli, texts

HERE = Path(__file__).parents[1] / "faults"
REPO = "tester/corpus"
SOURCE = f"hf://datasets/{REPO}/sample/10BT"
OUT = "s3://bucket/tokens/z"
LETTERS = {"tokenizer": "words:Letters", "eot_token": "<end>"}  # no engine to load, a token a byte
SMALL = {"executor": "inline", "unit_bytes": 12_000, "batch_bytes": 4_000, "bucket_bytes": 8_000}
RECIPES = {
    "shuffled": {"format": "nanogpt", "val": 0.1, **LETTERS},
    "streamed": {"format": "llmc", "shard_tokens": 20_000, **LETTERS},
    "sided": {"format": "megatron", "val": 0.1, **LETTERS},
    "closed": {"format": "mds", "shard_tokens": 20_480, "sequence_length": 512, **LETTERS},
}
CLIENTS = ("obstore.store", "huggingface_hub.hf_api", "huggingface_hub.file_download", "httpx2")  # imported once
QUICK = {
    "tokenmill.storage.remote.FIRST_WAIT_SECONDS": 0.01,
    "tokenmill.storage.remote.MAX_WAIT_SECONDS": 0.1,
    "tokenmill.storage.lease.SETTLE_SECONDS": 0.05,
    "tokenmill.scatter.GROUP_BYTES": 4_000,
}


def corpus_files(n_files: int = 4, n_documents: int = 100, suffix: str = ".parquet") -> dict[str, bytes]:
    """Files of a data set, by their names in it."""
    return {
        f"sample/10BT/{i:03d}_00000{suffix}": file_bytes(texts(n_documents, seed=i), suffix) for i in range(n_files)
    }


def file_bytes(documents: list[str], suffix: str) -> bytes:
    if suffix == ".parquet":
        sink = pa.BufferOutputStream()
        pq.write_table(pa.table({"text": documents}), sink, row_group_size=20)
        return sink.getvalue().to_pybytes()
    if suffix == ".jsonl":
        return "".join(json.dumps({"text": text}) + "\n" for text in documents).encode()
    return "<|endoftext|>".join(documents).encode()


def write_files(folder: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def content(folder: Path) -> dict[str, str]:
    """The SHA-256 of every file of an output; of the manifest and the sums what does not tell of the run itself."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        if path.name.startswith(".rclone_temp_put_"):  # the server is just at it, and will give it its name
            continue
        name, data = path.relative_to(folder).as_posix(), path.read_bytes()
        if name == "manifest.json":
            data = json.dumps(without_run(json.loads(data)), sort_keys=True).encode()
        if name == "SHA256SUMS":
            data = b"\n".join(line for line in data.splitlines() if not line.endswith(b"manifest.json"))
        found[name] = hashlib.sha256(data).hexdigest()
    return found


def without_run(manifest: dict) -> dict:
    return {key: value for key, value in manifest.items() if key not in ("run", "created", "created_at")}


def shards_of(found: dict[str, str]) -> dict[str, str]:
    """Without what names the sources: the manifest, and the sums it is in."""
    return {name: digest for name, digest in found.items() if name not in ("manifest.json", "SHA256SUMS")}


@dataclass
class Journey:
    """Where runs of one test work, and what they see of the world."""

    forks: Forks
    scratch: Path
    bucket: Path  # the folder behind s3://bucket
    env: dict[str, str]
    constants: dict[str, object] = field(default_factory=lambda: dict(QUICK))

    def run(
        self,
        recipe: dict,
        out: str | Path = OUT,
        *,
        source: str = SOURCE,
        fault: str = "",
        seconds: float = 60.0,
        **options,
    ) -> Ended:
        """Carry out a recipe in a process of its own, which is killed after so many seconds with a HangError."""
        spec = {
            "recipe": {"sources": [source], **recipe}, "out": str(out), "fault": fault, "env": self.env,
            "options": {**SMALL, **options}, "constants": self.constants, "modules": [str(HERE)],
        }  # fmt: skip
        return self.forks.run(spec, seconds)

    def cli(self, *arguments: str | Path, **env: str) -> Ended:
        """The command line, in a process of its own."""
        spec = {"argv": [*map(str, arguments)], "env": {**self.env, **env}, "constants": self.constants}
        return self.forks.run({**spec, "modules": [str(HERE)]}, 60.0)

    def start(self, *arguments: str | Path, **env: str) -> Run:
        """The command line, left running."""
        return start_cli(*arguments, env={**self.env, **env})

    def output(self, out: str = OUT) -> Path:
        """Where the objects of an output are."""
        return self.bucket / out.removeprefix("s3://bucket/")

    def lose_scratch(self) -> None:
        """As on another machine."""
        shutil.rmtree(self.scratch, ignore_errors=True)

    def leftovers(self) -> list[str]:
        """Whatever a finished run must not leave: work in the store, anything in scratch."""
        in_store = [path for path in self.bucket.rglob("*") if path.is_file() and ".work" in path.parts]
        in_scratch = list(self.scratch.rglob("*")) if self.scratch.exists() else []
        partial = list(self.bucket.rglob("*.partial"))
        return sorted(map(str, [*in_store, *in_scratch, *partial]))
