"""Tokenizers: a name that goes anywhere, and engines that are loaded where they are needed.

`Tokenizer` is a small value: it pickles as its name (and, for a file, its digest) and loads its engine on first use,
once per process. It also answers as tiktoken's `Encoding` does, and so takes its place in scripts.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tokenmill.errors import DamageError, RecipeError, TokenmillError, did_you_mean
from tokenmill.tokenizers.definitions import Definition, Engine, Reference, definition_of, is_file
from tokenmill.tokenizers.loading import LOADING
from tokenmill.tokenizers.vocabularies import VOCABULARIES

if TYPE_CHECKING:
    from tokenmill.batches import Documents, Tokens
    from tokenmill.tokenizers.map_function import MapFunction

# Special tokens that end or begin a document in the vocabularies people use. One of them: that is it. Several: ask.
EOT_NAMES = (
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|begin_of_text|>",
    "</s>",
    "<s>",
    "<eos>",
    "<bos>",
    "[EOS]",
    "[SEP]",
    "<\uff5cend\u2581of\u2581sentence\uff5c>",
    "<\uff5cbegin\u2581of\u2581sentence\uff5c>",
)


class Tokenizer:
    """A tokenizer: `gpt2`, `cl100k_base` and their like, a tokenizer.json or its folder, a rank file and a pattern."""

    __slots__ = ("_place", "name", "pattern")
    name: str
    pattern: str | None
    _place: str  # the name; for a file its whole path, which holds when the working folder changes

    def __init__(self, name: str | os.PathLike[str], pattern: str | None = None) -> None:
        name = os.fspath(name)
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "pattern", pattern)
        object.__setattr__(self, "_place", str(Path(name).absolute()) if is_file(name) else name)
        definition_of(self._place, pattern)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Tokenizer does not change")

    def __reduce__(self) -> tuple[object, ...]:
        if is_file(self._place):
            return (_restored, (self.name, self.pattern, self._place, self.identity))
        return (Tokenizer, (self.name,))

    def __repr__(self) -> str:
        return f"Tokenizer({self.name!r})" if self.pattern is None else f"Tokenizer({self.name!r}, {self.pattern!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and (self._place, self.pattern) == (other._place, other.pattern)

    def __hash__(self) -> int:
        return hash((Tokenizer, self._place, self.pattern))

    @property
    def definition(self) -> Definition:
        return definition_of(self._place, self.pattern)

    @property
    def identity(self) -> str:
        """A digest of the tokenizer's behavior: equal identities give equal ids."""
        return self.definition.identity

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, special tokens included."""
        return self.definition.vocab_size

    @property
    def n_vocab(self) -> int:
        """tiktoken's name for `vocab_size`."""
        return self.vocab_size

    @property
    def max_token_value(self) -> int:
        """The largest id."""
        return self.vocab_size - 1

    @property
    def special_tokens(self) -> Mapping[str, int]:
        return self.definition.special_tokens

    @property
    def special_tokens_set(self) -> set[str]:
        return set(self.special_tokens)

    @property
    def _special_tokens(self) -> dict[str, int]:
        """tiktoken's private name: the scripts of llm.c and build-nanogpt take end-of-text from it."""
        return dict(self.special_tokens)

    @property
    def eot_token(self) -> int:
        """The id of end-of-text, where there is one obvious token for it."""
        return self.eot_id(None)

    def eot_id(self, wanted: str | int | None) -> int:
        """Return the id that stands for end-of-text: the one wanted, by name or id, or the obvious one."""
        if isinstance(wanted, int) or (wanted is not None and wanted.isdecimal()):
            if not 0 <= int(wanted) < 2**32:
                raise RecipeError(f"end-of-text {wanted} is no id: ids are from 0 to 2^32 - 1")
            # A rank file knows nothing of special tokens: their ids come behind its own.
            if int(wanted) >= self.vocab_size and self.special_tokens:
                raise RecipeError(f"end-of-text {wanted} is no id of `{self.name}`, which has {self.vocab_size:,}")
            return int(wanted)
        if wanted is not None:
            if wanted not in self.special_tokens:
                hint = did_you_mean(wanted, list(self.special_tokens)[:20])
                raise RecipeError(f"`{self.name}` has no special token `{wanted}`", hint=hint)
            return self.special_tokens[wanted]
        obvious = {name: self.special_tokens[name] for name in EOT_NAMES if name in self.special_tokens}
        if len(obvious) == 1:
            return next(iter(obvious.values()))
        found = ", ".join(f"`{name}` ({i})" for name, i in obvious.items())
        raise RecipeError(
            f"which token of `{self.name}` is end-of-text? It could be {found}"
            if obvious
            else f"`{self.name}` has no token that is obviously end-of-text",
            hint="pass `--eot-token NAME` or `--eot-token ID`, or `--eot none`",
        )

    @property
    def engine(self) -> Engine:
        """The engine that does the work in this process."""
        with LOADING:
            return _engine(self.definition)[0]

    @property
    def engine_reason(self) -> str:
        """Why this engine."""
        with LOADING:
            return _engine(self.definition)[1]

    @property
    def reference(self) -> Reference:
        """The engine that defines what is right."""
        return _reference(self.definition)

    def encode(
        self,
        text: str,
        *,
        allowed_special: Literal["all"] | Collection[str] = (),
        disallowed_special: Literal["all"] | Collection[str] = (),
    ) -> list[int]:
        """Return the ids of one text. Special tokens that it spells are encoded as text, unless they are allowed.

        The keywords mean what tiktoken's do; only the default differs, where tiktoken refuses such a text.
        """
        if not allowed_special and not disallowed_special:
            return self.encode_ordinary(text)
        from tokenmill.tokenizers.special import encode_with_special

        return encode_with_special(self, text, allowed_special, disallowed_special)

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text."""
        tokens = self.encode_to_tokens(texts)
        ends = tokens.doc_lengths.cumsum().tolist()
        ids = tokens.ids.tolist()
        return [ids[a:b] for a, b in zip([0, *ends], ends, strict=False)]

    def encode_ordinary(self, text: str) -> list[int]:
        """Return the ids of one text, as tiktoken's function of that name does."""
        return self.encode_batch([text])[0]

    def encode_ordinary_batch(self, text: Iterable[str], *, num_threads: int = 8) -> list[list[int]]:
        """Return the ids of each text. `num_threads` is taken for tiktoken's sake: one thread is faster than its 8."""
        return self.encode_batch(text)

    def encode_to_tokens(self, texts: Iterable[str]) -> Tokens:
        """Return the ids of all texts in one flat array, with the length of each."""
        engine = self.engine  # before all else: what it imports is imported under the lock
        texts = list(texts)  # gone through twice
        if wrong := [text for text in texts if not isinstance(text, str)]:
            raise TypeError(f"expected str, not {type(wrong[0]).__name__}")
        try:
            return engine.encode(_documents(texts))
        except UnicodeEncodeError:  # lone surrogates: tiktoken joins pairs of them, and makes U+FFFD of the others
            texts = [text.encode("utf-16", "surrogatepass").decode("utf-16", "replace") for text in texts]
            return engine.encode(_documents(texts))

    def decode(self, tokens: Iterable[int], errors: str = "replace") -> str:
        """Return the text of ids; bytes that are no UTF-8 (a token cut off from its neighbor) become U+FFFD.

        `errors` is that of `bytes.decode`; other values than "replace" are for tiktoken's vocabularies alone.
        """
        ids = [int(i) for i in tokens]
        if errors == "replace":
            return self.reference.decode(ids)
        decode_bytes = getattr(self.reference, "decode_bytes", None)
        if decode_bytes is None:
            raise RecipeError(f"`{self.name}` decodes to text, not to bytes: errors={errors!r} has no meaning")
        return str(decode_bytes(ids).decode("utf-8", errors=errors))

    def map_function(
        self,
        column: str = "text",
        eot: Literal["first", "last", "none"] = "last",
        batched: bool = True,
        eot_token: str | int | None = None,
    ) -> MapFunction:
        """Return the function for `datasets.map(f, batched=...)`: it adds `ids` and `len` to each row."""
        from tokenmill.tokenizers.map_function import MapFunction

        if eot not in ("first", "last", "none"):
            raise RecipeError(f"eot {eot!r} is not known", hint="choose `first`, `last` or `none`")
        return MapFunction(self, column, eot, None if eot == "none" else self.eot_id(eot_token), batched)


def tokenizer_names() -> list[str]:
    """The tokenizers that need no file: shipped ones and those of entry points."""
    from tokenmill.tokenizers.custom import entry_point_names

    return [*VOCABULARIES, *entry_point_names()]


def _restored(name: str, pattern: str | None, place: str, identity: str) -> Tokenizer:
    tokenizer = Tokenizer(place, pattern)
    object.__setattr__(tokenizer, "name", name)
    if tokenizer.identity != identity:
        raise DamageError(f"the tokenizer `{name}` is not the one that was pickled: its file changed")
    return tokenizer


def _documents(texts: Sequence[str]) -> Documents:
    import numpy as np

    from tokenmill.batches import Documents, text_array

    array = text_array(texts)
    return Documents(array, np.arange(len(array), dtype=np.uint32), len(array))


@lru_cache
def _engine(definition: Definition) -> tuple[Engine, str]:
    from tokenmill.tokenizers import delimiters  # noqa: F401 - the map function needs it

    # The first call may import more. It is made here, under the lock: a child forked in the middle of an import
    # waits for ever when it comes to import the same.
    first = _documents([""])
    if definition.fast is None:
        return _reference(definition), definition.reason
    try:
        engine = definition.fast(lambda: _reference(definition))
        engine.encode(first)
        return engine, definition.reason
    except (KeyboardInterrupt, SystemExit, TokenmillError):
        raise
    except BaseException as error:  # a panic in a Rust library is no Exception
        return _reference(definition), f"gigatoken refuses it: {str(error).splitlines()[0] if str(error) else error!r}"


def _reference(definition: Definition) -> Reference:
    with LOADING:
        return _loaded_reference(definition)


@lru_cache
def _loaded_reference(definition: Definition) -> Reference:
    return definition.reference()
