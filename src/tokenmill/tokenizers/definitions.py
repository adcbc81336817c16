"""What a tokenizer is, wherever it comes from: a shipped name, a file, or somebody else's code.

    gpt2, cl100k_base ...       shipped with the package                        vocabularies.py
    ranks.tiktoken + pattern    a rank file, and the pattern that splits text   vocabularies.py
    tokenizer.json, its folder  Hugging Face                                    huggingface.py
    package.module:attribute    an object with the protocol of custom.py        custom.py
    a name                      the same, found by entry point                  custom.py

Each of them comes down to one `Definition`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from tokenmill.errors import RecipeError, did_you_mean
from tokenmill.tokenizers.loading import LOADING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenmill.batches import Documents, Tokens

    Ids = npt.NDArray[np.unsignedinteger]


class Engine(Protocol):
    """What turns text to ids. Special tokens are off: text that spells one stays text."""

    name: str
    version: str

    def encode(self, documents: Documents) -> Tokens:
        """Return the ids of each document, without end-of-text."""


class Reference(Engine, Protocol):
    """The engine that defines what is right, one document at a time."""

    def encode_one(self, text: str) -> Ids:
        """Return the ids of one document, whatever is in it."""

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids; bytes that are no UTF-8 become U+FFFD."""


@dataclass(frozen=True, eq=False)  # equal if it is the same one: engines are kept by it
class Definition:
    """A tokenizer: what decides its ids, and the engines that make them."""

    name: str
    identity: str  # a digest of the behavior: equal identities, equal ids
    vocab_size: int  # one more than the largest id
    special_tokens: Mapping[str, int]
    reference: Callable[[], Reference]
    fast: Callable[[Callable[[], Reference]], Engine] | None  # None: there is none, for `reason`
    reason: str
    sample_share: float = 1 / 1000  # of the documents, that every run encodes again with the reference
    proven: bool = True  # False: agreement must be seen on the first documents of the user's own corpus


def definition_of(name: str, pattern: str | None) -> Definition:
    """Find the tokenizer that a name, a file or an import path stands for; a file that changed is read again."""
    file = Path(name) / "tokenizer.json" if Path(name).is_dir() else Path(name)
    status = file.stat() if file.is_file() else None
    stamp = (status.st_mtime_ns, status.st_size) if status else None
    with LOADING:
        return _definition(name, pattern, stamp, given(name))


@lru_cache
def _definition(name: str, pattern: str | None, stamp: tuple[int, int] | None, given: int | None) -> Definition:
    from tokenmill.tokenizers import custom, huggingface, vocabularies

    path = Path(name)
    if name.endswith(".tiktoken") and path.is_file():
        return vocabularies.rank_file_definition(path, pattern)
    if name.endswith(".tiktoken"):
        raise RecipeError(f"no such rank file: `{name}`")
    if pattern is not None:
        raise RecipeError("a pattern belongs to a `.tiktoken` rank file", hint="leave `--pattern` out")
    if name in vocabularies.VOCABULARIES:
        return vocabularies.VOCABULARIES[name].definition(name)
    if path.is_dir() or name.endswith(".json"):
        return huggingface.tokenizer_json_definition(path)
    if (definition := custom.definition_named(name)) is not None:
        return definition
    if path.exists():
        raise RecipeError(
            f"`{name}` is no tokenizer", hint="a `tokenizer.json`, its folder, or a `.tiktoken` rank file"
        )
    known = [*vocabularies.VOCABULARIES, *custom.entry_point_names()]
    raise RecipeError(f"unknown tokenizer `{name}`", hint=did_you_mean(name, known))


def given(name: str) -> int | None:
    """Which object a name stands for that the user gave in this process, if it does."""
    from tokenmill.tokenizers.custom import _GIVEN

    return id(_GIVEN[name]) if name in _GIVEN else None


def is_file(name: str) -> bool:
    """Whether a tokenizer is named by its file, so that the name depends on the working folder."""
    from tokenmill.tokenizers.vocabularies import VOCABULARIES

    return name not in VOCABULARIES and Path(name).exists()
