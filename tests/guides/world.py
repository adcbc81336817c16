"""What the commands of the docs read: small files under the names that the pages use.

Inputs are made where a page's commands name them. Outputs that a page takes for granted are listed page by page.
"""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import tokenizers
from conftest import jsonl_bytes, write_arrow, write_parquet, zstd_bytes
from tokenizers import decoders, models, pre_tokenizers, trainers

import tokenmill
from tokenmill.sources.catalog import CATALOG

ROOT = Path(__file__).parents[2]
VOCABULARIES = Path(tokenmill.__file__).parent / "tokenizers" / "vocab"
TEXTS = [*pq.read_table(CATALOG["sample"], columns=["text"]).column("text").to_pylist()[:39], "Grace Hopper wrote it."]
DYING = "tests/ways/doctor_scripts/fault_captured_encoder.py"

INPUTS = {
    "fineweb/": lambda folder: shards(folder / "fineweb"),
    "crawl/": lambda folder: shards(folder / "crawl"),
    "--input fineweb-edu": lambda folder: shards(folder / "fineweb-edu" / "sample" / "10BT"),
    "books.txt": lambda folder: (folder / "books.txt").write_text("<|endoftext|>".join(TEXTS)),
    "corpus.txt": lambda folder: (folder / "corpus.txt").write_text("<|endoftext|>".join(TEXTS)),
    "document.txt": lambda folder: (folder / "document.txt").write_text(TEXTS[0]),
    "lines.txt": lambda folder: (folder / "lines.txt").write_text("one\ntwo\nthree\n"),
    "crawl.parquet": lambda folder: write_parquet(folder / "crawl.parquet", [*TEXTS, "a" + " " * 1_100_000 + "x"]),
    "corpus.parquet": lambda folder: write_parquet(folder / "corpus.parquet", TEXTS),
    "forum.jsonl": lambda folder: (folder / "forum.jsonl").write_bytes(jsonl_bytes(TEXTS) + b"{broken\n"),
    "mine/": lambda folder: tokenizer_json(folder / "mine"),
    "llama3/": lambda folder: tokenizer_json(folder / "llama3"),
    "mine.tiktoken": lambda folder: shutil.copy(VOCABULARIES / "r50k_base.tiktoken", folder / "mine.tiktoken"),
    "doctor prepare.py": lambda folder: shutil.copy(ROOT / DYING, folder / "prepare.py"),
    "python prepare.py": lambda folder: shutil.copy(ROOT / "data/fineweb/prepare.py", folder),
    "python prepare_fineweb.py": lambda folder: shutil.copy(ROOT / "data/fineweb/prepare_fineweb.py", folder),
    "~/.config/fish": lambda folder: (folder / ".config/fish/completions").mkdir(parents=True),  # which fish makes
}
OUTPUTS = {
    "README.md": ["flat"],
    "docs/inspect.md": ["data"],
    "docs/merge.md": ["crawl_2023", "crawl_2024"],
    "docs/stats.md": ["out"],
    "docs/status.md": ["data"],
    "help of inspect": ["out", "data", "llmc"],
    "help of stats": ["out"],
    "help of report": ["out"],
    "help of push": ["out"],
}


def shards(folder: Path) -> None:
    """Two Parquet files and an Arrow file, as a crawl comes."""
    folder.mkdir(parents=True)
    columns = {"language": ["en"] * 20, "int_score": list(range(20))}
    for number in range(2):
        write_parquet(folder / f"000_0000{number}.parquet", TEXTS[number * 20 : number * 20 + 20], **columns)
    if folder.name == "crawl":
        write_arrow(folder / "cache.arrow", TEXTS)


def tokenizer_json(folder: Path) -> None:
    """A small byte-level BPE with GPT-2's end-of-text."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet)
    trainer.show_progress = False
    tokenizer.train_from_iterator(TEXTS[:5], trainer)
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))


def make_output(folder: Path, name: str) -> None:
    """A finished output; `flat` and `llmc` are single files of one, as somebody hands them over."""
    source = write_parquet(folder / f"{name}.made.parquet", TEXTS)
    kind = {"llmc": "llmc"}.get(name, "nanogpt")
    tokenmill.prepare(source, folder / name, format=kind, val="none", executor="inline")
    if name == "flat":
        shutil.move(folder / name / "train.bin", folder / "train.bin")
    if name == "llmc":
        shutil.move(folder / name / "fineweb_train_000000.bin", folder / "fineweb_train_000001.bin")


def fill_hub(hub) -> None:
    """The corpora that pages name, and somebody called `me` who may write."""
    table = pa.table({"text": TEXTS})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    data = sink.getvalue().to_pybytes()
    for corpus in ("fineweb", "fineweb-edu"):
        hub.add_repo(f"HuggingFaceFW/{corpus}", {"sample/10BT/000_00000.parquet": data})
    hub.namespaces |= {"me"}


def fill_bucket(bucket: Path, page: str) -> None:
    """A crawl; and where a page only fetches tokens, these too."""
    (bucket / "crawl").mkdir(parents=True)
    (bucket / "crawl" / "0.jsonl.zst").write_bytes(zstd_bytes(jsonl_bytes(TEXTS)))
    if "download" in page:
        (bucket / "tokens").mkdir()
        (bucket / "tokens" / "train.bin").write_bytes(b"\0\0")
