"""Makes tests/foreign: files of each format that tokenmill had no hand in, written by the projects' own libraries.

`python tests/consumers/make_foreign.py` in the main environment, after `make test-consumers` has made the others,
encodes a few documents and starts itself in those, once for each library. `documents.json` holds the ids that went in.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOREIGN = ROOT / "tests" / "foreign"
EOT = {"gpt2": 50256, "cl100k_base": 100257}
SEQUENCE_LENGTH = 64
TEXTS = [
    "The mill stands by the river, and the river turns the wheel.",
    "Grain goes in at the top. Flour comes out below, as fine as the stones are close.",
    "A miller who sleeps while the wheel turns will find the stones worn and the sacks empty in the morning.",
    "It's 1234 sacks a year, or a little more: 1,300 in a wet one.",
    "def grind(grain):\n    for stone in stones:\n        grain = stone(grain)\n    return grain\n",
    "Die Mühle steht am Fluss. 粉は細かい。",
    "Yes.",
    "When the water is low the wheel is still, and the miller mends his sacks, sharpens his stones, and waits for"
    " rain. When it is high he opens the sluice and lets it pass, for a wheel that turns too fast breaks what it should"
    " grind.",
]  # fmt: skip


def with_megatron(documents: dict[str, list[list[int]]], out: Path) -> None:
    """As Megatron's tools/preprocess_data.py does it, --append-eod."""
    import torch
    from megatron.core.datasets.indexed_dataset import DType, IndexedDatasetBuilder

    for name, docs in documents.items():
        dtype = DType.optimal_dtype(EOT[name] + 1)
        builder = IndexedDatasetBuilder(str(out / f"{name}_text_document.bin"), dtype=dtype)
        for ids in docs:
            builder.add_document(torch.tensor([*ids, EOT[name]], dtype=torch.int64), [len(ids) + 1])
        builder.finalize(str(out / f"{name}_text_document.idx"))


def with_datatrove(documents: dict[str, list[list[int]]], out: Path) -> None:
    from datatrove.pipeline.tokens.tokenizer import TokenizedFile

    for name, docs in documents.items():
        file = TokenizedFile(
            str(out / name), "00000_unshuffled.ds", save_index=True, save_loss_metadata=False,
            tokenizer_name_or_path=name, token_size=2 if EOT[name] < 2**16 else 4, save_final_metadata=True,
        )  # fmt: skip
        for ids in docs:
            file.write([*ids, EOT[name]], None)
        file.close()
        file.write_final_metadata()


def with_litdata(documents: dict[str, list[list[int]]], out: Path) -> None:
    """int32 tensors, as litgpt's preparation makes them, and arrays of unsigned ones."""
    import numpy as np
    import torch
    from litdata import TokensLoader
    from litdata.streaming.writer import BinaryWriter

    for name, docs in documents.items():
        arrays = {"int32": lambda ids: torch.tensor(ids, dtype=torch.int32)}
        unsigned = np.dtype("uint16" if EOT[name] < 2**16 else "uint32")
        arrays[unsigned.name] = lambda ids, dtype=unsigned: np.array(ids, dtype=dtype)
        for dtype, array in arrays.items():
            folder = out / f"{name}_{dtype}"
            folder.mkdir()
            writer = BinaryWriter(str(folder), chunk_size=200, item_loader=TokensLoader(SEQUENCE_LENGTH))
            for i, ids in enumerate(docs):
                writer.add_item(i, array([*ids, EOT[name]]))
            writer.done()
            writer.merge(1)


def with_mds(documents: dict[str, list[list[int]]], out: Path) -> None:
    """As llm-foundry writes samples today, compressed and not; as bytes, its older way; and of a fixed shape."""
    import numpy as np
    from readers import without_torchvision

    without_torchvision()
    from streaming import MDSWriter

    kinds = {
        "dynamic": ("ndarray:int32", np.int32, None),
        "zstd": ("ndarray:int32", np.int32, "zstd"),
        "bytes": ("bytes", np.int64, None),
        "uint16": (f"ndarray:uint16:{SEQUENCE_LENGTH}", np.uint16, None),
        "fixed": (f"ndarray:int32:{SEQUENCE_LENGTH}", np.int32, None),
    }
    for name, docs in documents.items():
        ids = np.array([token for doc in docs for token in [*doc, EOT[name]]])
        samples = ids[: len(ids) // SEQUENCE_LENGTH * SEQUENCE_LENGTH].reshape(-1, SEQUENCE_LENGTH)
        for kind, (encoding, dtype, compression) in kinds.items():
            if EOT[name] >= 2**16 and kind not in ("dynamic", "fixed"):
                continue
            limit = {} if kind == "fixed" else {"size_limit": 1000}
            where = str(out / f"{name}_{kind}")
            with MDSWriter(out=where, columns={"tokens": encoding}, compression=compression, **limit) as writer:
                for sample in samples.astype(dtype):
                    writer.write({"tokens": sample.tobytes() if kind == "bytes" else sample})


def with_datasets(documents: dict[str, list[list[int]]], out: Path) -> None:
    from datasets import Dataset

    for name, docs in documents.items():
        rows = [[*ids, EOT[name]] for ids in docs]
        Dataset.from_dict({"input_ids": rows}).to_parquet(out / f"{name}.parquet")


def with_numpy(documents: dict[str, list[list[int]]], out: Path) -> None:
    """nanoGPT's train.bin, build-nanogpt's .npy, and llm.c's .bin, in the words of their own scripts."""
    import numpy as np

    for name, docs in documents.items():
        dtype = np.uint16 if EOT[name] < 2**16 else np.uint32
        last = np.array([token for doc in docs for token in [*doc, EOT[name]]], dtype=dtype)
        first = np.array([token for doc in docs for token in [EOT[name], *doc]], dtype=dtype)
        for folder in ("nanogpt", "npy", "llmc"):
            (out / folder / name).mkdir(parents=True)
        last.tofile(out / "nanogpt" / name / "train.bin")
        np.save(out / "npy" / name / "edufineweb_train_000001.npy", first)
        header = np.zeros(256, dtype=np.int32)
        header[:3] = (20240520, 1, len(first)) if dtype == np.uint16 else (20240801, 7, len(first))
        (out / "llmc" / name / "fineweb_train_000001.bin").write_bytes(header.tobytes() + first.tobytes())


WRITERS = {
    "megatron": (with_megatron, ".venv-consumers"),
    "datatrove": (with_datatrove, ".venv-consumers"),
    "litdata": (with_litdata, ".venv-consumers"),
    "mds": (with_mds, ".venv-streaming"),
    "parquet": (with_datasets, ".venv"),
    ".": (with_numpy, ".venv"),
}


def make_all(only: list[str]) -> None:
    from tokenmill import Tokenizer

    FOREIGN.mkdir(exist_ok=True)
    documents = {name: [Tokenizer(name).encode(text) for text in TEXTS] for name in EOT}
    (FOREIGN / "documents.json").write_text(json.dumps({"eot": EOT, "texts": TEXTS, "documents": documents}) + "\n")
    for folder, (_, venv) in WRITERS.items():
        if only and folder not in only:
            continue
        for old in ("nanogpt", "npy", "llmc") if folder == "." else (folder,):
            shutil.rmtree(FOREIGN / old, ignore_errors=True)
        (FOREIGN / folder).mkdir(exist_ok=True)
        python = ROOT / venv / "bin" / "python"
        subprocess.run([python, __file__, "--write", folder], check=True, timeout=300)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        made = json.loads((FOREIGN / "documents.json").read_text())["documents"]
        WRITERS[sys.argv[2]][0](made, FOREIGN / sys.argv[2])
    else:
        make_all(sys.argv[1:])
