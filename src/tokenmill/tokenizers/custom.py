"""Tokenizers from outside: any object with this protocol, by import path or by entry point.

    class Words:
        name = "words"
        identity = "words 1"            # changes whenever ids would
        vocab_size = 1000
        special_tokens = {"<end>": 999}

        def encode_batch(self, texts: list[str]) -> list[list[int]]: ...
        def decode(self, ids: list[int]) -> str: ...

    tokenmill prepare corpus/ -o out --tokenizer my_package.my_module:Words --eot-token '<end>'

From Python the object itself will do, `tokenmill.prepare(..., tokenizer=Words())`: the work is done in that process.

The attribute may be the object, a class or a function that returns it. Every worker imports it by itself: nothing is
pickled. An entry point of the group `tokenmill.tokenizers` gives such an object a name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Protocol

from tokenmill.errors import DataError, RecipeError
from tokenmill.tokenizers.definitions import Definition

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenmill.batches import Documents, Tokens

GROUP = "tokenmill.tokenizers"
PROTOCOL = ("name", "identity", "vocab_size", "special_tokens", "encode_batch", "decode")


class CustomTokenizer(Protocol):
    name: str
    identity: str
    vocab_size: int
    special_tokens: Mapping[str, int]

    def encode_batch(self, texts: Sequence[str]) -> Sequence[Sequence[int]]: ...
    def decode(self, ids: Sequence[int]) -> str: ...


_GIVEN: dict[str, Any] = {}


def named_for(tokenizer: Any) -> str:
    """Keep an object of the user's for this process, and return the name that stands for it."""
    name = f"object:{getattr(tokenizer, 'name', type(tokenizer).__name__)}"
    definition_of_object(tokenizer, name)
    _GIVEN[name] = tokenizer
    return name


def entry_point_names() -> list[str]:
    return sorted(entry.name for entry in entry_points(group=GROUP))


def definition_named(name: str) -> Definition | None:
    """Return the tokenizer behind `module:attribute` or the name of an entry point; None if it is neither."""
    if name in _GIVEN:
        return definition_of_object(_GIVEN[name], name)
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            return definition_of_object(made(entry.load()), name)
    module, colon, attribute = name.partition(":")
    if not colon or not all(word.isidentifier() for word in module.split(".")) or not attribute.isidentifier():
        return None
    try:
        tokenizer = made(getattr(import_module(module), attribute))
    except Exception as error:  # whatever somebody's module does when it is imported
        raise RecipeError(f"cannot import the tokenizer `{name}`: {type(error).__name__}: {error}") from None
    return definition_of_object(tokenizer, name)


def made(found: Any) -> Any:
    """The object itself, or what a class or function returns."""
    return found() if isinstance(found, type) or not hasattr(found, "encode_batch") else found


def definition_of_object(tokenizer: Any, name: str) -> Definition:
    """Return the definition of an object with the protocol."""
    missing = [f"`{word}`" for word in PROTOCOL if not hasattr(tokenizer, word)]
    if missing:
        raise RecipeError(f"`{name}` is no tokenizer: it has no {', '.join(missing)}")
    if not isinstance(tokenizer.vocab_size, int) or not isinstance(tokenizer.special_tokens, Mapping):
        raise RecipeError(f"`{name}` is no tokenizer: vocab_size must be an int, special_tokens a mapping")
    return Definition(
        name=name,
        identity=hashlib.sha256(f"custom {tokenizer.identity}".encode()).hexdigest(),
        vocab_size=tokenizer.vocab_size,
        special_tokens=tokenizer.special_tokens,
        reference=partial(CustomEngine, tokenizer),
        fast=None,
        reason="a tokenizer from outside is its own reference",
    )


class CustomEngine:
    version = "custom"

    def __init__(self, tokenizer: CustomTokenizer) -> None:
        self.name = tokenizer.name
        self._tokenizer = tokenizer

    def encode(self, documents: Documents) -> Tokens:
        import numpy as np

        from tokenmill.batches import Tokens

        ids = self._encoded(documents.texts.to_pylist())
        lengths = np.array([len(one) for one in ids], dtype=np.int64)
        return Tokens(np.concatenate([np.empty(0, np.uint32), *ids]), lengths)

    def encode_one(self, text: str) -> npt.NDArray[np.uint32]:
        return self._encoded([text])[0]

    def _encoded(self, texts: list[str]) -> list[npt.NDArray[np.uint32]]:
        """Call the tokenizer, and take nothing but a list of ids for each text."""
        import numpy as np

        arrays = [np.asarray(one) for one in self._tokenizer.encode_batch(texts)]
        if len(arrays) != len(texts):
            raise DataError(f"tokenizer `{self.name}` returned {len(arrays)} lists for {len(texts)} texts")
        for array in arrays:
            if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
                raise DataError(
                    f"tokenizer `{self.name}` must return lists of ids, not {array.dtype} of {array.ndim} dimensions"
                )
            if array.size and not 0 <= int(array.min()) <= int(array.max()) < self._tokenizer.vocab_size:
                found = f"{int(array.min()):,} to {int(array.max()):,}"
                raise DataError(
                    f"tokenizer `{self.name}` gave ids from {found}, and has {self._tokenizer.vocab_size:,}"
                )
        return [array.astype(np.uint32) for array in arrays]

    def decode(self, ids: Sequence[int]) -> str:
        return self._tokenizer.decode(list(ids))
