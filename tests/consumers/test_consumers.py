"""What tokenmill writes is read by the trainers' own code, and the tokens and documents are the same.

`make test-consumers` makes the environments that the readers run in. Each reader is a process with a time limit.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tokenmill

sys.path.insert(0, str(Path(__file__).parents[1]))

from conftest import prepare_inline

ROOT = Path(__file__).parents[2]
READERS = Path(__file__).parent / "readers.py"
LIMIT_SECONDS = 120
TOKENIZERS = ["gpt2", "cl100k_base"]  # 16 and 32 bits
SHARD_TOKENS = 60_000  # six shards or so
N_VAL = 40
SPLITS = ["train", "val"]


def environment(name: str):
    """Marks a test that needs an environment of its own."""
    missing = not (ROOT / name / "ready").exists()
    return pytest.mark.skipif(missing, reason=f"{name} is not there: `make test-consumers` makes it")


trainers, streaming = environment(".venv-consumers"), environment(".venv-streaming")


def read(venv: str, reader: str, folders: list[Path], target: Path, **options) -> list[dict[str, np.ndarray]]:
    """What a reader finds in each folder. One process: most of its time goes into importing the trainer."""
    command = [ROOT / venv / "bin" / "python", READERS, reader, target]
    command += [f"{name}={value}" for name, value in options.items()] + ["--", *folders]
    environ = {**os.environ, "HF_HUB_OFFLINE": "1", "TMPDIR": str(target), "HOME": str(target)}
    ended = subprocess.run(
        command, timeout=LIMIT_SECONDS, capture_output=True, text=True, cwd=target, env=environ, check=False
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return [dict(np.load(target / f"{i}.npz")) for i in range(len(folders))]


@pytest.fixture(scope="module", params=TOKENIZERS)
def tokenizer(request):
    return request.param


@pytest.fixture
def written(tokenizer, tmp_path):
    """Writes the sample corpus in a format, and returns the output."""

    def write(shard_format: str, **fields) -> tokenmill.Shards:
        out = tmp_path / shard_format
        prepare_inline("sample", out, format=shard_format, tokenizer=tokenizer, **fields)
        assert tokenmill.verify(out).ok
        return tokenmill.open_shards(out)

    return write


@pytest.fixture(scope="module")
def expected(tokenizer, sample_texts):
    """The documents as the reference tokenizer makes them, without end-of-text."""
    return [tokenmill.Tokenizer(tokenizer).encode(text) for text in sample_texts]


@pytest.fixture(scope="module")
def eot(tokenizer):
    return tokenmill.Tokenizer(tokenizer).eot_token


def split_documents(expected, eot, split, n_val=N_VAL):
    """The documents of a split, end-of-text behind each."""
    documents = expected[:n_val] if split == "val" else expected[n_val:]
    return [[*ids, eot] for ids in documents]


def flat(documents) -> list[int]:
    return [token for document in documents for token in document]


def shards_and_documents(shards: tokenmill.Shards, split: str, documents):
    """Each shard of a split with the documents that must be in it. Of train there are several."""
    receipts = [shard for shard in shards.manifest.shards if shard.split == split]
    assert split == "val" or len(receipts) >= 5
    assert sum(shard.n_documents for shard in receipts) == len(documents)
    for shard in receipts:
        yield shard, documents[: shard.n_documents]
        documents = documents[shard.n_documents :]


def whole_blocks(shards: tokenmill.Shards, split: str, documents, length: int) -> list[int]:
    """The tokens of a split without those that fill no block at the end of a shard: the readers drop them."""
    parts = shards_and_documents(shards, split, documents)
    return [token for shard, some in parts for token in flat(some)[: shard.n_tokens // length * length]]


def assert_same(found: dict[str, np.ndarray], documents) -> None:
    assert found["lengths"].tolist() == [len(document) for document in documents]
    assert found["tokens"].tolist() == flat(documents)


@trainers
def test_megatron_core_reads_every_document(written, expected, eot, tmp_path):
    out = written("megatron", name="corpus", val=N_VAL).out
    prefixes = [out / f"corpus_{split}_text_document" for split in SPLITS]
    for split, found in zip(SPLITS, read(".venv-consumers", "megatron", prefixes, tmp_path), strict=True):
        assert_same(found, split_documents(expected, eot, split))
        assert found["tokens"].dtype == ("uint16" if eot < 2**16 else "int32")


@trainers
def test_megatrons_gpt_dataset_serves_every_token(written, expected, eot, tmp_path):
    """Its order is a permutation of documents and of samples, so tokens are counted."""
    prefix = written("megatron", name="corpus").out / "corpus_text_document"
    (found,) = read(".venv-consumers", "megatron_gpt", [prefix], tmp_path, sequence_length=128)
    tokens = flat(split_documents(expected, eot, "train", 0))
    n_samples = (len(tokens) - 1) // 128
    assert len(found["tokens"]) == n_samples * 129  # a sample begins with the last token of another one
    missing = np.bincount(tokens, minlength=2**17) - np.bincount(found["tokens"], minlength=2**17)
    assert missing.clip(0).sum() <= len(tokens) - n_samples * 128  # the tail that fills no sample


@trainers
def test_datatrove_reads_every_window_and_knows_the_documents(written, expected, eot, tmp_path):
    shards, length = written("datatrove", shard_tokens=SHARD_TOKENS, val=N_VAL), 256
    options = {"sequence_length": length - 1, "token_size": 2 if eot < 2**16 else 4}
    results = read(".venv-consumers", "datatrove", [shards.out / split for split in SPLITS], tmp_path, **options)
    for split, found in zip(SPLITS, results, strict=True):
        documents = split_documents(expected, eot, split)
        assert found["tokens"].tolist() == whole_blocks(shards, split, documents, length)
        positions = []
        for shard, some in shards_and_documents(shards, split, documents):
            places = np.concatenate([np.arange(len(document)) for document in some])
            places = places[: shard.n_tokens // length * length]
            # A document that began in an earlier window begins at 0 again.
            positions += np.minimum(places, np.arange(len(places)) % length).tolist()
        assert found["positions"].tolist() == positions


@trainers
def test_datatroves_own_check_accepts_16_bit_shards(written, expected, eot, tmp_path):
    if eot >= 2**16:
        pytest.skip("datatrove's check_dataset reads the last two bytes of a document whatever the size of a token is")
    folder = written("datatrove", shard_tokens=SHARD_TOKENS).out / "train"
    (found,) = read(".venv-consumers", "datatrove_check", [folder], tmp_path, eot=eot)
    assert found["lengths"].tolist() == [len(ids) + 1 for ids in expected]


@trainers
def test_litdata_serves_every_block(written, expected, eot, tmp_path):
    shards = written("litdata", shard_tokens=SHARD_TOKENS, val=N_VAL)
    results = read(".venv-consumers", "litdata", [shards.out / split for split in SPLITS], tmp_path, block_size=128)
    for split, found in zip(SPLITS, results, strict=True):
        assert found["tokens"].tolist() == whole_blocks(shards, split, split_documents(expected, eot, split), 128)


@streaming
def test_mosaicml_streaming_reads_every_sample(written, expected, eot, tmp_path):
    length = 256
    out = written("mds", sequence_length=length, shard_tokens=200 * length, val=N_VAL).out
    results = read(".venv-streaming", "streaming", [out / split for split in SPLITS], tmp_path)
    for split, found in zip(SPLITS, results, strict=True):
        tokens = flat(split_documents(expected, eot, split))
        n_samples = len(tokens) // length
        assert found["lengths"].tolist() == [length] * n_samples
        assert found["tokens"].tolist() == tokens[: n_samples * length]
        assert found["tokens"].dtype == "int32"


@trainers
def test_olmo_core_reads_instances_and_documents(written, expected, eot, tmp_path):
    shards = written("olmo", shard_tokens=SHARD_TOKENS, val=N_VAL)
    options = {"sequence_length": 256, "dtype": "uint16" if eot < 2**16 else "uint32", "eot": eot}
    results = read(".venv-consumers", "olmo", [shards.out / split for split in SPLITS], tmp_path, **options)
    for split, found in zip(SPLITS, results, strict=True):
        documents = split_documents(expected, eot, split)
        assert_same(found, documents)
        assert found["instances"].tolist() == whole_blocks(shards, split, documents, 256)


def test_datasets_loads_parquet_with_its_splits(written, expected, eot, tmp_path):
    import datasets

    out = written("parquet", shard_tokens=SHARD_TOKENS, val=N_VAL).out
    assert len(list(out.glob("train-*.parquet"))) >= 5
    loaded = datasets.load_dataset(str(out), cache_dir=str(tmp_path / "cache"))
    assert {str(name) for name in loaded} == {"train", "validation"}
    assert loaded["train"]["input_ids"][:] == split_documents(expected, eot, "train")
    assert loaded["validation"]["input_ids"][:] == split_documents(expected, eot, "val")
    files = str(out / "train-*.parquet")
    streamed = datasets.load_dataset("parquet", data_files=files, split="train", streaming=True)
    assert next(iter(streamed))["input_ids"] == [*expected[N_VAL], eot]


def test_numpy_reads_nanogpt_as_its_train_py_does(written, expected, eot):
    out = written("nanogpt", shuffle="none", val=N_VAL).out
    for split in ("train", "val"):
        data = np.memmap(out / f"{split}.bin", dtype=np.uint16 if eot < 2**16 else np.uint32, mode="r")
        assert data.tolist() == flat(split_documents(expected, eot, split))


def test_numpy_reads_npy_as_build_nanogpt_does(written, expected, eot):
    """load_tokens and the choice of shards, from its train_gpt2.py."""
    out = written("npy", shard_tokens=SHARD_TOKENS).out
    tokens = []
    for split in ("val", "train"):
        shards = sorted(path for path in out.iterdir() if split in path.name)
        tokens += [np.load(path).astype(np.int32) for path in shards]
    assert np.concatenate(tokens).tolist() == flat([eot, *ids] for ids in expected)


def test_numpy_reads_llmc_as_its_train_gpt2_py_does(written, expected, eot):
    """_peek_data_shard and _load_data_shard, from llm.c's train_gpt2.py; _load_data_shard of train_llama3.py."""
    out = written("llmc", shard_tokens=SHARD_TOKENS).out
    tokens = []
    for path in [*sorted(out.glob("*_val_*.bin")), *sorted(out.glob("*_train_*.bin"))]:
        with path.open("rb") as file:
            header = np.frombuffer(file.read(256 * 4), dtype=np.int32)
            assert tuple(header[:2]) == ((20240520, 1) if eot < 2**16 else (20240801, 7))
            tokens.append(np.frombuffer(file.read(), dtype=np.uint16 if eot < 2**16 else np.uint32))
            assert len(tokens[-1]) == header[2]
    assert np.concatenate(tokens).tolist() == flat([eot, *ids] for ids in expected)
