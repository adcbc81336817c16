"""The vocabularies that ship with the package (OpenAI's, see NOTICE), and rank files like them.

A rank file holds the mergeable byte strings and their ids; the split pattern and the special tokens belong to it
and stand here. A shipped file is checked against its SHA-256 whenever it is loaded.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from tokenmill.errors import DamageError, RecipeError, did_you_mean
from tokenmill.tokenizers.definitions import Definition

FOLDER = Path(__file__).parent / "vocab"

SHOWN_EQUAL = "shown equal to {}; documents with code points where the two differ go to {}"


@dataclass(frozen=True)
class Vocabulary:
    """What defines a tiktoken encoding, and which of gigatoken's pretokenizers splits as its pattern does."""

    file: str
    sha256: str
    pattern: str
    special_tokens: Mapping[str, int]
    vocab_size: int
    pretokenizer: str | None  # None: gigatoken cannot take it, for `reason`
    reason: str = SHOWN_EQUAL.format("tiktoken", "tiktoken")

    @property
    def path(self) -> Path:
        return FOLDER / self.file

    def checked_bytes(self) -> bytes:
        data = self.path.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != self.sha256:
            raise DamageError(
                f"vocabulary file `{self.path}` is not what it was\n"
                f"  SHA-256 expected: {self.sha256}\n  SHA-256 found:    {found}",
                hint="reinstall tokenmill" if self.path.parent == FOLDER else None,
            )
        return data

    def ranks(self) -> dict[bytes, int]:
        try:
            lines = [line.split() for line in self.checked_bytes().splitlines() if line]
            return {base64.b64decode(token, validate=True): int(rank) for token, rank in lines}
        except (ValueError, binascii.Error) as error:
            raise DamageError(f"`{self.path}` is no rank file: {error}") from None

    def definition(self, name: str) -> Definition:
        from tokenmill.tokenizers.engines import fast_by_ranks, tiktoken_reference

        # Ids depend on ranks and pattern; the special tokens stand apart.
        behavior = (self.sha256, self.pattern, sorted(self.special_tokens.items()))
        return Definition(
            name=name,
            identity=hashlib.sha256(msgspec.json.encode(behavior)).hexdigest(),
            vocab_size=self.vocab_size,
            special_tokens=self.special_tokens,
            reference=partial(tiktoken_reference, self),
            fast=partial(fast_by_ranks, self) if self.pretokenizer else None,
            reason=self.reason,
            proven=self.path.parent == FOLDER,
        )


def rank_file_definition(path: Path, pattern: str | None) -> Definition:
    """Return the tokenizer of a `.tiktoken` file whose pattern is that of a shipped vocabulary."""
    if pattern is None:
        raise RecipeError(
            f"`{path}` holds ranks, and not the pattern that splits text",
            hint=f"pass `--pattern` with one of {', '.join(VOCABULARIES)}",
        )
    if pattern not in VOCABULARIES:
        raise RecipeError(f"unknown pattern `{pattern}`", hint=did_you_mean(pattern, list(VOCABULARIES)))
    like = VOCABULARIES[pattern]
    unchecked = Vocabulary(
        str(path.absolute()), hashlib.sha256(path.read_bytes()).hexdigest(), like.pattern, {}, 0, None
    )
    ranks = unchecked.ranks()
    if len(set(ranks.values())) < len(ranks) or not all(0 <= rank < 2**32 for rank in ranks.values()):
        raise RecipeError(f"`{path}` gives a rank twice, or one below 0 or above 2^32")
    missing = [i for i in range(256) if bytes([i]) not in ranks]
    if missing:
        raise RecipeError(f"`{path}` has no rank for the byte {missing[0]}: not every text could be encoded")
    dense = sorted(ranks.values()) == list(range(len(ranks)))
    pretokenizer = (like.pretokenizer or "gpt2") if dense else None
    return Vocabulary(
        file=str(path.absolute()),
        sha256=unchecked.sha256,
        pattern=like.pattern,
        special_tokens={},
        vocab_size=max(ranks.values()) + 1,
        pretokenizer=pretokenizer,
        reason=like.reason if dense else "gigatoken takes only dense ranks",
    ).definition(str(path))


_GPT2_PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"""

_CL100K_PATTERN = (
    r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"""
    r"""|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""
)

_O200K_PATTERN = "|".join(
    [
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
        r"""\p{N}{1,3}""",
        r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""",
        r"""\s*[\r\n]+""",
        r"""\s+(?!\S)""",
        r"""\s+""",
    ]
)

_R50K = Vocabulary(
    file="r50k_base.tiktoken",
    sha256="306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930",
    pattern=_GPT2_PATTERN,
    special_tokens={"<|endoftext|>": 50256},
    vocab_size=50257,
    pretokenizer="gpt2",
)

VOCABULARIES: dict[str, Vocabulary] = {
    # One tokenizer under two names: tiktoken builds its gpt2 from other files, with the same ranks.
    "gpt2": _R50K,
    "r50k_base": _R50K,
    "p50k_base": Vocabulary(
        file="p50k_base.tiktoken",
        sha256="94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069",
        pattern=_GPT2_PATTERN,
        special_tokens={"<|endoftext|>": 50256},
        vocab_size=50281,
        pretokenizer=None,
        reason="gigatoken takes only dense ranks, and p50k_base leaves out 50256",
    ),
    "cl100k_base": Vocabulary(
        file="cl100k_base.tiktoken",
        sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
        pattern=_CL100K_PATTERN,
        special_tokens={
            "<|endoftext|>": 100257,
            "<|fim_prefix|>": 100258,
            "<|fim_middle|>": 100259,
            "<|fim_suffix|>": 100260,
            "<|endofprompt|>": 100276,
        },
        vocab_size=100277,
        pretokenizer="gpt4",
    ),
    "o200k_base": Vocabulary(
        file="o200k_base.tiktoken",
        sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
        pattern=_O200K_PATTERN,
        special_tokens={"<|endoftext|>": 199999, "<|endofprompt|>": 200018},
        vocab_size=200019,
        pretokenizer="o200k",
    ),
}
