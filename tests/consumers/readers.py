"""What each trainer's own code reads of an output: `python readers.py READER TARGET NAME=VALUE... -- FOLDER...`.

Runs in the environment of the consumer, without tokenmill. Writes TARGET/0.npz for the first folder and so on:
`tokens`, in the order of the reader, and where it has them `lengths`, the tokens of each document.
"""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import numpy as np


def without_torchvision() -> None:
    """Stand in for torchvision, which `streaming` imports and whose wheel does not load beside a torch for CPUs."""
    datasets, functional = ModuleType("torchvision.datasets"), ModuleType("torchvision.transforms.functional")
    datasets.VisionDataset, functional.to_tensor = object, None
    for module in (ModuleType("torchvision"), datasets, ModuleType("torchvision.transforms"), functional):
        module.__spec__ = ModuleSpec(module.__name__, None)
        sys.modules[module.__name__] = module


def megatron(prefix: Path) -> dict:
    """Reads every document, once by memory map and once by file."""
    from megatron.core.datasets.indexed_dataset import IndexedDataset

    dataset = IndexedDataset(str(prefix), multimodal=False, mmap=True)
    by_file = IndexedDataset(str(prefix), multimodal=False, mmap=False)
    documents = [dataset[i] for i in range(len(dataset))]
    assert all(np.array_equal(by_file[i], document) for i, document in enumerate(documents))
    assert dataset.document_indices.tolist() == list(range(len(dataset) + 1))
    assert dataset.sequence_lengths.tolist() == [len(document) for document in documents]
    # A copy: the map goes with the data set.
    return {"tokens": np.concatenate(documents), "lengths": np.array(dataset.sequence_lengths)}


def megatron_gpt(prefix: Path, sequence_length: str) -> dict:
    """The samples of GPTDataset, which pretrain_gpt.py trains on: inputs, and behind them the last label."""
    import torch
    from megatron.core.datasets.blended_megatron_dataset_builder import BlendedMegatronDatasetBuilder
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    class Tokenizer:
        """What the data set asks of one."""

        vocab_size, eod, unique_identifiers = 2**17, 50256, {"class": "none"}
        pad = eos = eod

    torch.distributed.init_process_group("gloo", init_method=f"file://{prefix}.gloo", rank=0, world_size=1)
    config = GPTDatasetConfig(
        random_seed=1, sequence_length=int(sequence_length), blend=([str(prefix)], None), split="1,0,0",
        path_to_cache=f"{prefix}.cache", tokenizer=Tokenizer(), reset_position_ids=False, reset_attention_mask=False,
        eod_mask_loss=False, mid_level_dataset_surplus=0.005,
    )  # fmt: skip
    (train, *_) = BlendedMegatronDatasetBuilder(GPTDataset, [None, None, None], lambda: True, config).build()
    samples = [train[i] for i in range(len(train))]
    torch.distributed.destroy_process_group()
    return {"tokens": np.concatenate([np.append(s["tokens"], s["labels"][-1:]) for s in samples])}


def datatrove(folder: Path, sequence_length: str, token_size: str) -> dict:
    """Windows of sequence_length + 1 tokens, file by file, and the place of each token in its document."""
    from datatrove.utils.dataset import DatatroveFolderDataset

    dataset = DatatroveFolderDataset(
        str(folder), seq_len=int(sequence_length), token_size=int(token_size), return_positions=True
    )
    windows = [dataset[i] for i in range(len(dataset))]
    return {
        "tokens": np.concatenate([window["input_ids"].numpy() for window in windows]),
        "positions": np.concatenate([window["positions"].numpy() for window in windows]),
        "windows": np.array([len(file) for file in dataset.files]),
    }


def datatrove_check(folder: Path, eot: str) -> dict:
    """datatrove's own check of a folder; its tokenizer is asked for the id of end-of-text and nothing else."""
    from datatrove.io import get_datafolder
    from datatrove.tools.check_dataset import check_dataset, load_doc_ends
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    vocabulary = Path(f"{folder}.tokenizer.json")
    Tokenizer(WordLevel({"<|endoftext|>": int(eot)}, unk_token="<|endoftext|>")).save(str(vocabulary))
    check_dataset(get_datafolder(str(folder)), str(vocabulary))
    ends = [load_doc_ends(path.open("rb")) for path in sorted(folder.glob("*.ds.index"))]
    return {"lengths": np.concatenate([np.diff([0, *some]) for some in ends])}


def litdata(folder: Path, block_size: str) -> dict:
    """Every block, as litgpt takes it: batches of the loader, cast to int64."""
    from litdata import StreamingDataLoader, StreamingDataset, TokensLoader

    dataset = StreamingDataset(
        str(folder), item_loader=TokensLoader(block_size=int(block_size)), shuffle=False, drop_last=False
    )
    blocks = np.stack([np.asarray(dataset[i]) for i in range(len(dataset))])
    batches = [batch[:, :].contiguous().long().numpy() for batch in StreamingDataLoader(dataset, batch_size=8)]
    assert np.array_equal(np.concatenate(batches), blocks)
    return {"tokens": blocks.ravel()}


def streaming(folder: Path) -> dict:
    """Every sample of a data set in a local folder, by number and by iteration."""
    without_torchvision()
    from streaming import StreamingDataset
    from streaming.base.util import clean_stale_shared_memory

    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(folder), shuffle=False, batch_size=1)
    samples = [dataset[i]["tokens"] for i in range(len(dataset))]
    iterated = [sample["tokens"] for sample in dataset]
    assert len(iterated) == len(samples)
    assert all(map(np.array_equal, samples, iterated))
    return {"tokens": np.concatenate(samples), "lengths": np.array([len(sample) for sample in samples])}


def olmo(folder: Path, sequence_length: str, dtype: str, eot: str) -> dict:
    """OLMo-core's instances, and the documents by its scan for end-of-text and by the lists beside the arrays."""
    from olmo_core.data import NumpyFSLDataset
    from olmo_core.data.utils import get_document_indices, iter_document_indices, load_array_slice

    kind = np.dtype(dtype).type
    paths = sorted(folder.glob("*.npy"))
    dataset = NumpyFSLDataset(
        *paths, sequence_length=int(sequence_length), pad_token_id=int(eot), eos_token_id=int(eot), dtype=kind,
        vocab_size=2**17,
    )  # fmt: skip
    dataset.prepare()
    scanned = [pair for path in paths for pair in iter_document_indices(path, eos_token_id=int(eot), dtype=kind)]
    listed = [pair for path in paths for pair in get_document_indices(path)]
    assert [tuple(map(int, pair)) for pair in scanned] == listed
    documents = [
        load_array_slice(path, start, end, kind) for path in paths for start, end in get_document_indices(path)
    ]
    return {
        "tokens": np.concatenate(documents),
        "lengths": np.array([end - start for start, end in listed]),
        "instances": np.concatenate([dataset[i]["input_ids"].numpy() for i in range(len(dataset))]),
    }


READERS = {
    reader.__name__: reader for reader in (megatron, megatron_gpt, datatrove, datatrove_check, litdata, streaming, olmo)
}

if __name__ == "__main__":
    reader, target, *options = sys.argv[1 : sys.argv.index("--")]
    for i, folder in enumerate(sys.argv[sys.argv.index("--") + 1 :]):
        found = READERS[reader](Path(folder), **dict(option.split("=", 1) for option in options))
        np.savez(Path(target) / f"{i}.npz", **found)
