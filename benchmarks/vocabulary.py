"""The shipped gpt2 vocabulary in every form that a contender loads, without a network.

FOLDER/r50k_base.tiktoken     the ranks
FOLDER/tokenizer.json         the same for Hugging Face `tokenizers`
FOLDER/tiktoken/              where tiktoken looks before it asks the network: TIKTOKEN_CACHE_DIR
"""

from __future__ import annotations

import base64
import hashlib
import inspect
import json
import re
import shutil
from itertools import pairwise
from pathlib import Path

import tiktoken_ext.openai_public
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

import tokenmill

SHIPPED = Path(tokenmill.__file__).parent / "tokenizers/vocab"


def write_vocabulary(folder: Path) -> None:
    """Write all of it into a folder."""
    (folder / "tiktoken").mkdir(parents=True)
    for name in ("r50k_base", "cl100k_base", "o200k_base"):
        source = inspect.getsource(getattr(tiktoken_ext.openai_public, name))
        (url,) = re.findall(r'"(https://[^"]+\.tiktoken)"', source)
        cached = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
        shutil.copy(SHIPPED / f"{name}.tiktoken", folder / "tiktoken" / cached)
    ranks = folder / "r50k_base.tiktoken"
    shutil.copy(SHIPPED / ranks.name, ranks)
    definition = json.loads(gpt2_tokenizer(ranks).to_str())
    # As strings, which the library of old reads as well; it is what dolma comes with.
    definition["model"]["merges"] = [" ".join(pair) for pair in definition["model"]["merges"]]
    (folder / "tokenizer.json").write_text(json.dumps(definition))


def gpt2_tokenizer(ranks_file: Path) -> tokenizers.Tokenizer:
    """Ranks as a tokenizer of `tokenizers`: each token of several bytes was merged from two of lower rank."""
    lines = (line.split() for line in ranks_file.read_bytes().splitlines())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    merges = [merged_from(token, ranks) for token in sorted(ranks, key=ranks.__getitem__) if len(token) > 1]
    letters = byte_letters()

    def spelled(token: bytes) -> str:
        return "".join(letters[byte] for byte in token)

    vocabulary = {spelled(token): rank for token, rank in ranks.items()}
    pairs = [(spelled(left), spelled(right)) for left, right in merges]
    tokenizer = tokenizers.Tokenizer(models.BPE(vocabulary, pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def merged_from(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two tokens that a token was merged from: what merging all pairs of lower rank leaves of it."""
    pieces = [token[i : i + 1] for i in range(len(token))]
    while len(pieces) > 2:
        pairs = [ranks.get(left + right, len(ranks)) for left, right in pairwise(pieces)]
        at = pairs.index(min(pairs))
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return pieces[0], pieces[1]


def byte_letters() -> dict[int, str]:
    """GPT-2's letter for each byte: itself where it can be seen, and the letters from U+0100 on for the others."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in seen]
    return {byte: chr(byte) for byte in seen} | {byte: chr(0x100 + i) for i, byte in enumerate(hidden)}
