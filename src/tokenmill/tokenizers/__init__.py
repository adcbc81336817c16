"""Tokenizers: a name that goes anywhere, and engines that are loaded where they are needed.

`Tokenizer` is a small value: it pickles as its name and loads its engine on first use, once per process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol

from tokenmill.errors import RecipeError, did_you_mean
from tokenmill.tokenizers.vocabularies import VOCABULARIES, Vocabulary

if TYPE_CHECKING:
    from tokenmill.batches import Documents, Tokens
    from tokenmill.tokenizers.tiktoken import TiktokenEngine


class Engine(Protocol):
    """What turns text to ids. Special tokens are off: text that spells one stays text."""

    name: str
    version: str

    def encode(self, documents: Documents) -> Tokens:
        """Return the ids of each document, without end-of-text."""


class Tokenizer:
    """A tokenizer by name: `gpt2`, `r50k_base`, `p50k_base`, `cl100k_base` or `o200k_base`."""

    __slots__ = ("name",)
    name: str

    def __init__(self, name: str) -> None:
        if name not in VOCABULARIES:
            raise RecipeError(f"unknown tokenizer `{name}`", hint=did_you_mean(name, tokenizer_names()))
        object.__setattr__(self, "name", name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Tokenizer does not change")

    def __reduce__(self) -> tuple[type[Tokenizer], tuple[str]]:
        return (Tokenizer, (self.name,))

    def __repr__(self) -> str:
        return f"Tokenizer({self.name!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.name == other.name

    def __hash__(self) -> int:
        return hash((Tokenizer, self.name))

    @property
    def vocabulary(self) -> Vocabulary:
        return VOCABULARIES[self.name]

    @property
    def identity(self) -> str:
        """A digest of the tokenizer's behavior: equal identities give equal ids."""
        return self.vocabulary.identity

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, special tokens included."""
        return self.vocabulary.vocab_size

    @property
    def dtype(self) -> Literal["<u2", "<u4"]:
        """The smallest type that holds every id, little-endian, as numpy spells it."""
        return "<u2" if self.vocab_size <= 2**16 else "<u4"

    @property
    def special_tokens(self) -> Mapping[str, int]:
        return self.vocabulary.special_tokens

    @property
    def eot_token(self) -> int:
        return self.special_tokens["<|endoftext|>"]

    @property
    def engine_name(self) -> str:
        return "gigatoken" if self.vocabulary.pretokenizer else "tiktoken"

    @property
    def engine_reason(self) -> str:
        """Why this engine."""
        return self.vocabulary.reason

    @property
    def engine(self) -> Engine:
        """The engine that does the work in this process."""
        return _engine(self.name)

    @property
    def reference(self) -> TiktokenEngine:
        """The engine that defines what is right."""
        return _reference(self.name)

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text. Special tokens that it spells are encoded as text."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text."""
        import numpy as np
        import pyarrow as pa

        from tokenmill.batches import Documents

        array = pa.array(texts, pa.large_string())
        tokens = self.engine.encode(Documents(array, np.arange(len(array), dtype=np.uint32), len(array)))
        ends = np.cumsum(tokens.doc_lengths).tolist()
        ids = tokens.ids.tolist()
        return [ids[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids; bytes that are no UTF-8 (a token cut off from its neighbor) become U+FFFD."""
        return self.reference.decode_bytes([int(i) for i in ids]).decode("utf-8", errors="replace")


def tokenizer_names() -> list[str]:
    return list(VOCABULARIES)


@lru_cache
def _engine(name: str) -> Engine:
    tokenizer = Tokenizer(name)
    if tokenizer.engine_name == "tiktoken":
        return tokenizer.reference
    from tokenmill.tokenizers.gigatoken import GigatokenEngine

    return GigatokenEngine(tokenizer.vocabulary, lambda: tokenizer.reference)


@lru_cache
def _reference(name: str) -> TiktokenEngine:
    from tokenmill.tokenizers.tiktoken import TiktokenEngine

    return TiktokenEngine(VOCABULARIES[name])
