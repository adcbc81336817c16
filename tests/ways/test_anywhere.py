"""A tokenizer that goes anywhere: every start method, pool, thread and map, for real, with tiktoken's ids."""

import hashlib
import json
import os
import pickle
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tiktoken

from tokenmill import Tokenizer
from tokenmill.errors import DamageError, DataError, RecipeError
from tokenmill.tokenizers.vocabularies import VOCABULARIES

LIMIT_SECONDS = 100
NAMES = ["gpt2", "r50k_base", "p50k_base", "cl100k_base", "o200k_base"]
# tiktoken panics on the second one.
TEXTS = [
    "hello world",
    "a" + " " * 1_100_000 + "x",
    "",
    "before <|endoftext|> after",
    "I'll 日本語 👩‍👩‍👧",
    "a\U000323b0's",
]

# What every script begins with. Workers answer with digests: the ids of a million spaces need not travel each time.
BEGINNING = """
import hashlib, json, os, sys
import numpy as np
from tokenmill import Tokenizer

TEXTS = json.loads(os.environ["TEXTS"])
TEXTS[1] = TEXTS[1].replace("SPACES", " " * 1_100_000)
TOKENIZER = Tokenizer("gpt2")

def digest(ids):
    return hashlib.sha256(np.asarray(ids, dtype=np.uint32).tobytes()).hexdigest()

def by_global(text):
    return digest(TOKENIZER.encode_ordinary(text))

def by_argument(tokenizer, text):
    return digest(tokenizer.encode(text))
"""


def digest(ids) -> str:
    return hashlib.sha256(np.asarray(ids, dtype=np.uint32).tobytes()).hexdigest()


def encoding(name: str) -> tiktoken.Encoding:
    """tiktoken's own object, from the files that ship: its `get_encoding` asks the network."""
    vocabulary = VOCABULARIES[name]
    return tiktoken.Encoding(
        name,
        pat_str=vocabulary.pattern,
        mergeable_ranks=vocabulary.ranks(),
        special_tokens=dict(vocabulary.special_tokens),
    )


@pytest.fixture(scope="module")
def expected() -> list[str]:
    """The digests of the right ids: tiktoken's; for the million spaces the pattern's split, then single pieces."""
    plain = encoding("gpt2")
    ids = [
        Tokenizer("gpt2").reference.encode_by_pieces(text) if len(text) > 10**6 else plain.encode_ordinary(text)
        for text in TEXTS
    ]
    return [digest(one) for one in ids]


def answer(tmp_path: Path, code: str, *arguments: str, **environment: str) -> dict:
    """Run a script in a process of its own, with a hard limit, and return the JSON that it prints last."""
    script = tmp_path / "script.py"
    script.write_text(BEGINNING + code)
    texts = json.dumps([text.replace(" " * 1_100_000, "SPACES") for text in TEXTS])
    variables = os.environ | {"HF_HOME": str(tmp_path / "home"), "PYTHONWARNINGS": "error", "TEXTS": texts}
    variables |= environment
    command = [sys.executable, str(script), *arguments]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


POOLS = """
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from functools import partial

def run(context, kinds):
    cells = {}
    def pool_map(function):
        with context.Pool(2) as pool:
            return pool.map_async(function, TEXTS, chunksize=1).get(timeout=30)
    def executor_map(function):
        with ProcessPoolExecutor(2, mp_context=context) as executor:
            return list(executor.map(function, TEXTS, timeout=30))
    for kind in kinds:
        mapped = pool_map if kind == "Pool" else executor_map
        cells[f"{kind} global"] = mapped(by_global)
        cells[f"{kind} argument"] = mapped(partial(by_argument, Tokenizer("gpt2")))
        cells[f"{kind} bound method"] = [digest(ids) for ids in mapped(TOKENIZER.encode_ordinary)]
    return cells

if __name__ == "__main__":
    cells = run(multiprocessing.get_context(sys.argv[1]), ["Pool", "ProcessPoolExecutor"])
    if sys.argv[1] == "fork":  # and once more, now that the engine was used before the fork
        by_global("hello"), TOKENIZER.reference
        again = run(multiprocessing.get_context("fork"), ["Pool"])
        cells |= {f"{name}, used before": found for name, found in again.items()}
    print(json.dumps(cells))
"""


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_pools_of_every_start_method_give_the_ids_of_tiktoken(start_method, tmp_path, expected):
    cells = answer(tmp_path, POOLS, start_method)
    assert len(cells) == (9 if start_method == "fork" else 6)
    assert {name: found == expected for name, found in cells.items()} == dict.fromkeys(cells, True)


MAPS = """
import datasets
from datasets import Dataset

def map_global(row):
    return {"digest": by_global(row["text"]), "pid": os.getpid()}

def map_argument(row, tokenizer):
    return {"digest": by_argument(tokenizer, row["text"]), "pid": os.getpid()}

def run():
    folder = sys.argv[1]
    tokenizer = Tokenizer("gpt2")
    def closure(row):
        return {"digest": by_argument(tokenizer, row["text"]), "pid": os.getpid()}
    ways = {"global": (map_global, {}), "argument": (map_argument, {"tokenizer": tokenizer}), "closure": (closure, {})}
    cells = {}
    for way, (function, keywords) in ways.items():
        for num_proc in (None, 1, 2, 4):
            cache = f"{folder}/{way}-{num_proc}"
            ds = Dataset.from_generator(rows, cache_dir=cache)
            ds = ds.map(function, num_proc=num_proc, fn_kwargs=keywords)
            cells[f"{way} {num_proc}"] = {"digests": ds["digest"][:], "pids": ds["pid"][:], "n": num_proc}
    print(json.dumps({"pid": os.getpid(), "cells": cells}))

def rows():
    for text in TEXTS:
        yield {"text": text}

if __name__ == "__main__":
    datasets.disable_progress_bars()
    run()
"""


def test_datasets_map_gives_the_ids_of_tiktoken_in_up_to_as_many_workers_as_asked(tmp_path, expected):
    found = answer(tmp_path, MAPS, str(tmp_path / "caches"))
    assert len(found["cells"]) == 12
    for name, cell in found["cells"].items():
        assert cell["digests"] == expected, name
        pids = set(cell["pids"])
        if cell["n"] is None:
            assert pids == {found["pid"]}, name
        else:
            assert 1 <= len(pids) <= cell["n"], name  # a quick worker may take what another was to
            assert found["pid"] not in pids, name
    assert any(len(set(cell["pids"])) > 1 for cell in found["cells"].values())


THREADS = """
import threading

def run(use):
    barrier, found = threading.Barrier(8), []
    def first_use():
        barrier.wait()
        found.append(use())
    threads = [threading.Thread(target=first_use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    return found

engines = run(lambda: id(Tokenizer("gpt2").engine))
references = run(lambda: id(Tokenizer("gpt2").reference))
digests = run(lambda: [by_global(text) for text in TEXTS])
print(json.dumps({"engines": engines, "references": references, "digests": digests}))
"""


def test_threads_that_begin_at_the_same_moment_share_one_engine(tmp_path, expected):
    found = answer(tmp_path, THREADS)
    assert [len(found[name]) for name in found] == [8, 8, 8]
    assert len(set(found["engines"])) == len(set(found["references"])) == 1
    assert found["digests"] == [expected] * 8


FORKS = """
import signal, threading, time

thread = threading.Thread(target=lambda: (by_global("hello"), TOKENIZER.reference))
thread.start()
statuses = []
for pause in (0, 0.01, 0.05, 0.1, 0.2, 0.3):
    time.sleep(pause)
    pid = os.fork()
    if pid == 0:
        signal.alarm(30)  # a child that hangs is a child that dies
        right = by_global("hello world") == digest([31373, 995]) and TOKENIZER.decode([31373, 995]) == "hello world"
        os._exit(0 if right else 1)
    statuses.append(os.waitpid(pid, 0)[1])
thread.join()
print(json.dumps(statuses))
"""


def test_children_forked_while_a_thread_loads_the_engine_do_not_hang(tmp_path):
    assert answer(tmp_path, FORKS) == [0] * 6


LOADER = """
import torch

class Corpus(torch.utils.data.Dataset):
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer
    def __len__(self):
        return len(TEXTS)
    def __getitem__(self, i):
        return by_argument(self.tokenizer, TEXTS[i])

if __name__ == "__main__":
    cells = {}
    for method in ("fork", "spawn", "forkserver"):
        loader = torch.utils.data.DataLoader(
            Corpus(TOKENIZER), batch_size=None, num_workers=2, multiprocessing_context=method, timeout=60
        )
        cells[method] = list(loader)
    print(json.dumps(cells))
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="needs torch: pip install torch")
def test_data_loader_workers_give_the_ids_of_tiktoken(tmp_path, expected):
    # torch itself warns, and not about us.
    assert answer(tmp_path, LOADER, PYTHONWARNINGS="default") == dict.fromkeys(
        ["fork", "spawn", "forkserver"], expected
    )


FINGERPRINTS = """
from datasets import Dataset, disable_progress_bars
from datasets.fingerprint import Hasher

disable_progress_bars()
values = [TOKENIZER, Tokenizer("cl100k_base"), TOKENIZER.map_function(), TOKENIZER.map_function("body", "none", False)]
fresh = [Hasher.hash(value) for value in values]
by_global("now the engine is loaded")

ds = Dataset.from_parquet(sys.argv[1], cache_dir=sys.argv[2])
mapped = ds.map(TOKENIZER.map_function(), batched=True, num_proc=2)
files = [file["filename"] for file in mapped.cache_files]
print(json.dumps({
    "fresh": fresh,
    "loaded": [Hasher.hash(value) for value in values],
    "files": files,
    "times": [os.stat(file).st_mtime_ns for file in files],
}))
"""


def test_fingerprints_are_stable_and_a_second_map_is_served_from_the_cache(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"text": TEXTS}), tmp_path / "a.parquet")
    runs = [
        answer(tmp_path, FINGERPRINTS, str(tmp_path / "a.parquet"), str(tmp_path / "cache"), PYTHONHASHSEED=seed)
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]
    assert runs[0]["fresh"] == runs[0]["loaded"]
    assert len(set(runs[0]["fresh"])) == 4
    assert runs[0]["files"]


@pytest.mark.parametrize("name", NAMES)
def test_it_answers_as_tiktoken_does(name):
    ours, theirs = Tokenizer(name), encoding(name)
    texts = [text for text in TEXTS if len(text) < 10**6] + ["lone \ud800 surrogate", "\ud83d\ude00", "\ufeff\udfff"]
    for text in texts:
        ids = ours.encode_ordinary(text)
        assert ids == theirs.encode_ordinary(text)
        assert all(type(i) is int for i in ids)
        for keywords in (
            {"allowed_special": "all"},
            {"allowed_special": {"<|endoftext|>"}, "disallowed_special": "all"},
            {"disallowed_special": ()},
        ):
            assert ours.encode(text, **keywords) == theirs.encode(text, **keywords)
    assert ours.encode_ordinary_batch(texts, num_threads=2) == theirs.encode_ordinary_batch(texts, num_threads=2)
    assert ours.encode_ordinary_batch([]) == theirs.encode_ordinary_batch([]) == []
    for attribute in ("n_vocab", "max_token_value", "eot_token", "name", "special_tokens_set", "_special_tokens"):
        assert getattr(ours, attribute) == getattr(theirs, attribute), attribute
    for tokens in ([], [31373, 995], [447], [447, 31373], [theirs.eot_token, 1]):
        assert ours.decode(tokens) == theirs.decode(tokens)
        assert ours.decode(tokens, errors="ignore") == theirs.decode(tokens, errors="ignore")
    for wrong, error in (([2**31], KeyError), ([-1], OverflowError)):
        for one in (ours, theirs):
            with pytest.raises(error):
                one.decode(wrong)
    for wrong in (None, 1, b"bytes"):
        for one in (ours, theirs):
            with pytest.raises(TypeError):
                one.encode_ordinary(wrong)
    for one in (ours, theirs):
        with pytest.raises(ValueError, match=r"special token '<\|endoftext\|>'"):
            one.encode("a <|endoftext|>", allowed_special=set(), disallowed_special="all")
        with pytest.raises(UnicodeDecodeError):
            one.decode(one.encode_ordinary("👩")[:1], errors="strict")


def test_a_tokenizer_pickles_as_its_name(tmp_path):
    for name in NAMES:
        assert len(pickle.dumps(Tokenizer(name))) < 200
        assert len(pickle.dumps(Tokenizer(name).map_function())) < 250
    path = tmp_path / "ranks.tiktoken"
    path.write_bytes(VOCABULARIES["gpt2"].path.read_bytes())
    data = pickle.dumps(Tokenizer(str(path), "gpt2"))
    assert len(data) < 400
    path.write_bytes(path.read_bytes().replace(b" 50255", b" 50255\n"))
    with pytest.raises(DamageError, match="its file changed"):
        pickle.loads(data)  # noqa: S301


@pytest.mark.parametrize(("name", "dtype"), [("gpt2", "uint16"), ("cl100k_base", "uint32")])
def test_the_map_function_returns_ids_and_len_as_known_scripts_do(name, dtype):
    from datasets import Dataset, List, Value

    ds = Dataset.from_dict({"text": TEXTS, "id": range(len(TEXTS))})
    tokenizer = Tokenizer(name)
    right = tokenizer.encode_ordinary_batch(TEXTS)
    for eot, wanted in {
        "last": [[*ids, tokenizer.eot_token] for ids in right],
        "first": [[tokenizer.eot_token, *ids] for ids in right],
        "none": right,
    }.items():
        for batched in (True, False):
            mapped = ds.map(tokenizer.map_function(eot=eot, batched=batched), batched=batched, remove_columns="text")
            assert mapped.features["ids"] == List(Value(dtype))
            assert mapped.features["len"] == Value("uint32")
            assert mapped["ids"][:] == wanted
            assert mapped["len"][:] == [len(ids) for ids in wanted]


def test_the_map_function_says_what_is_wrong():
    tokenizer = Tokenizer("gpt2")
    with pytest.raises(RecipeError, match="no column `text`"):
        tokenizer.map_function()({"body": ["a"]})
    with pytest.raises(RecipeError, match="gave one row to a function that was made with batched=True"):
        tokenizer.map_function()({"text": "a"})
    with pytest.raises(RecipeError, match="eot 'both' is not known"):
        tokenizer.map_function(eot="both")


def test_a_tokenizer_of_a_relative_path_holds_where_the_working_folder_changes(tmp_path, monkeypatch):
    ranks = Path(find_spec("tokenmill").origin).parent / "tokenizers" / "vocab" / "r50k_base.tiktoken"
    (tmp_path / "a").mkdir()
    shutil.copy(ranks, tmp_path / "a" / "mine.tiktoken")
    monkeypatch.chdir(tmp_path / "a")
    tokenizer = Tokenizer(Path("mine.tiktoken"), "gpt2")
    before = pickle.dumps(tokenizer)
    monkeypatch.chdir(tmp_path)
    assert pickle.dumps(tokenizer) == before
    for one in (tokenizer, pickle.loads(before)):  # noqa: S301 - our own
        assert one.encode("hello world") == [31373, 995]
        assert (one.name, one) == ("mine.tiktoken", tokenizer)


def test_a_batch_may_be_anything_that_yields_texts():
    tokenizer = Tokenizer("gpt2")
    assert tokenizer.encode_batch(word for word in ("hello", "world")) == [[31373], [6894]]
    assert tokenizer.encode_ordinary_batch(iter(["hello", "\ud800"])) == [[31373], [4210]]


@pytest.mark.parametrize("batched", [True, False])
def test_a_row_without_text_is_told_as_such_by_the_map_function(batched):
    function = Tokenizer("gpt2").map_function(batched=batched)
    with pytest.raises(DataError, match="a row has no text: its `text` is None") as error:
        function({"text": ["a", None] if batched else None})
    assert error.value.hint == 'leave such rows out: `ds.filter(lambda row: row["text"] is not None)`'
    with pytest.raises(TypeError, match="expected str, not int"):
        function({"text": [5] if batched else 5})
