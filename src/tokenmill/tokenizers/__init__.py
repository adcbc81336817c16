"""Tokenizers: a name that goes anywhere, and engines that are loaded where they are needed.

`Tokenizer` is a small value: it pickles as its name (and, for a file, its digest) and loads its engine on first use,
once per process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from tokenmill.errors import DamageError, RecipeError, TokenmillError, did_you_mean
from tokenmill.tokenizers.definitions import Definition, Engine, Reference, definition_of, is_file
from tokenmill.tokenizers.vocabularies import VOCABULARIES

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

    __slots__ = ("name", "pattern")
    name: str
    pattern: str | None

    def __init__(self, name: str, pattern: str | None = None) -> None:
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "pattern", pattern)
        definition_of(name, pattern)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("a Tokenizer does not change")

    def __reduce__(self) -> tuple[object, ...]:
        if is_file(self.name):
            return (_restored, (self.name, self.pattern, self.identity))
        return (Tokenizer, (self.name,))

    def __repr__(self) -> str:
        return f"Tokenizer({self.name!r})" if self.pattern is None else f"Tokenizer({self.name!r}, {self.pattern!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and (self.name, self.pattern) == (other.name, other.pattern)

    def __hash__(self) -> int:
        return hash((Tokenizer, self.name, self.pattern))

    @property
    def definition(self) -> Definition:
        return definition_of(self.name, self.pattern)

    @property
    def identity(self) -> str:
        """A digest of the tokenizer's behavior: equal identities give equal ids."""
        return self.definition.identity

    @property
    def vocab_size(self) -> int:
        """One more than the largest id, special tokens included."""
        return self.definition.vocab_size

    @property
    def special_tokens(self) -> Mapping[str, int]:
        return self.definition.special_tokens

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
        return _engine(self.definition)[0]

    @property
    def engine_reason(self) -> str:
        """Why this engine."""
        return _engine(self.definition)[1]

    @property
    def reference(self) -> Reference:
        """The engine that defines what is right."""
        return _reference(self.definition)

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

    # As tiktoken.Encoding answers.
    encode_ordinary = encode

    def encode_ordinary_batch(self, text: Sequence[str], *, num_threads: int = 8) -> list[list[int]]:
        return self.encode_batch(text)

    @property
    def n_vocab(self) -> int:
        return self.vocab_size

    @property
    def max_token_value(self) -> int:
        return self.vocab_size - 1

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of the ids; bytes that are no UTF-8 (a token cut off from its neighbor) become U+FFFD."""
        return self.reference.decode([int(i) for i in ids])


def tokenizer_names() -> list[str]:
    """The tokenizers that need no file: shipped ones and those of entry points."""
    from tokenmill.tokenizers.custom import entry_point_names

    return [*VOCABULARIES, *entry_point_names()]


def _restored(name: str, pattern: str | None, identity: str) -> Tokenizer:
    tokenizer = Tokenizer(name, pattern)
    if tokenizer.identity != identity:
        raise DamageError(f"the tokenizer `{name}` is not the one that was pickled: its file changed")
    return tokenizer


@lru_cache
def _engine(definition: Definition) -> tuple[Engine, str]:
    if definition.fast is None:
        return _reference(definition), definition.reason
    try:
        return definition.fast(lambda: _reference(definition)), definition.reason
    except (KeyboardInterrupt, SystemExit, TokenmillError):
        raise
    except BaseException as error:  # a panic in a Rust library is no Exception
        return _reference(definition), f"gigatoken refuses it: {str(error).splitlines()[0] if str(error) else error!r}"


@lru_cache
def _reference(definition: Definition) -> Reference:
    return definition.reference()
