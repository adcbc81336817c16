"""Hugging Face's tokenizer.json: the reference is the `tokenizers` library, special tokens off.

gigatoken takes over where the file is of a kind that was compared: byte-level BPE, no normalizer or NFC, and one of
three pre-tokenizers. Added tokens that are not marked special are matched in the text by `tokenizers` even with
special tokens off; documents that spell one of them go to the reference.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from tokenmill.errors import RecipeError
from tokenmill.tokenizers.definitions import Definition
from tokenmill.tokenizers.vocabularies import SHOWN_EQUAL

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from tokenmill.batches import Documents, Tokens
    from tokenmill.tokenizers.definitions import Engine, Reference

# The patterns of pre-tokenizers that were compared, by the name of their table of odd code points.
SPLIT_PATTERNS = {
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+": "llama3",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+": "qwen2",
}


def tokenizer_json_definition(path: Path) -> Definition:
    """Return the tokenizer of a tokenizer.json, or of the folder that holds one."""
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        data = file.read_bytes()
        config = msgspec.json.decode(data, type=dict[str, Any])
        added = msgspec.convert(config.get("added_tokens") or [], list[AddedToken])
        # A mapping to ids, or for a Unigram model a list in the order of ids.
        vocab = msgspec.convert(config["model"]["vocab"], dict[str, int] | list[Any])
        normalizer = msgspec.convert(config.get("normalizer"), dict[str, Any] | None)
    except FileNotFoundError:
        hint = "a folder needs a file `tokenizer.json`" if path.is_dir() else None
        raise RecipeError(f"no such tokenizer: `{file}`", hint=hint) from None
    except (msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise RecipeError(f"`{file}` is no tokenizer.json: {error!r}") from None
    ids = [*vocab.values()] if isinstance(vocab, dict) else range(len(vocab))
    digest = hashlib.sha256(data).hexdigest()
    if config["model"].get("dropout"):
        raise RecipeError(f"`{file}` has dropout: its ids are random", hint="set `dropout` of its model to null")
    if not vocab:
        raise RecipeError(f"`{file}` has an empty vocabulary")
    uncovered = why_not_covered(config, normalizer, added)
    return Definition(
        name=str(path),
        identity=hashlib.sha256(f"tokenizer.json {digest}".encode()).hexdigest(),
        vocab_size=max([*ids, *(token.id for token in added)]) + 1,
        special_tokens={token.content: token.id for token in added if token.special},
        reference=partial(reference, file, digest),
        fast=None if uncovered else partial(fast, file, digest),
        reason=uncovered or SHOWN_EQUAL.format("tokenizers", "tokenizers"),
        # The tokenizers library takes 1.5 MB/s a core: at 1 in 1,000 the check would cost 4.8 % of a run.
        sample_share=1 / 2000,
        proven=False,
    )


class AddedToken(msgspec.Struct, frozen=True):
    id: int
    content: str
    special: bool = False
    normalized: bool = True


def why_not_covered(config: dict[str, Any], normalizer: dict[str, Any] | None, added: list[AddedToken]) -> str | None:
    """Return what about a tokenizer.json was never compared with gigatoken; None where all of it was."""
    model = config["model"]
    if model.get("type") != "BPE":
        return f"its model is {model.get('type')}, and only byte-level BPE was compared"
    plain: dict[str, tuple[object, ...]] = {
        "unk_token": (None,),
        "fuse_unk": (None, False),
        "byte_fallback": (None, False),
        "continuing_subword_prefix": (None, ""),
        "end_of_word_suffix": (None, ""),
    }
    for key, values in plain.items():
        if model.get(key) not in values:
            return f"its model has `{key}`, which was never compared"
    if normalizer is not None and normalizer != {"type": "NFC"}:
        return f"its normalizer is {normalizer.get('type')}, and only NFC was compared"
    if pretokenizer_of(config) is None:
        return "its pre-tokenizer is none of those that were compared"
    if normalizer and any(token.normalized and not token.special for token in added):
        return "it has added tokens that are matched in the normalized text"
    return None


def pretokenizer_of(config: dict[str, Any]) -> str | None:
    """Return the name of the pre-tokenizer, if it is one that was compared."""
    match config.get("pre_tokenizer"):
        case {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}:
            return "gpt2"
        case {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
                {"type": "ByteLevel", "add_prefix_space": False, "use_regex": False},
            ],
        }:
            return SPLIT_PATTERNS.get(pattern)
    return None


def checked_config(file: Path, digest: str) -> bytes:
    data = file.read_bytes()
    if hashlib.sha256(data).hexdigest() != digest:
        raise RecipeError(f"`{file}` changed while it was in use")
    return data


def reference(file: Path, digest: str) -> Reference:
    return TokenizersEngine(checked_config(file, digest))


def fast(file: Path, digest: str, reference: Callable[[], Reference]) -> Engine:
    import gigatoken

    from tokenmill.tokenizers.disagreements import ODD_CODE_POINTS, ODD_UNDER_NFC
    from tokenmill.tokenizers.gigatoken import GigatokenEngine

    config = msgspec.json.decode(checked_config(file, digest), type=dict[str, Any])
    matched = [token["content"] for token in config.get("added_tokens") or [] if not token.get("special")]
    name = pretokenizer_of(config)
    assert name is not None
    odd = ODD_UNDER_NFC if config.get("normalizer") else ODD_CODE_POINTS[name]
    tokenizer = gigatoken.Tokenizer.from_json(msgspec.json.encode({**config, "added_tokens": []}))
    return GigatokenEngine(tokenizer, odd, matched, reference)


class TokenizersEngine:
    name = "tokenizers"

    def __init__(self, config: bytes) -> None:
        import tokenizers

        self.version = tokenizers.__version__
        try:
            self._tokenizer = tokenizers.Tokenizer.from_buffer(config)
        except Exception as error:  # the library raises nothing more precise
            raise RecipeError(f"the tokenizers library cannot read this tokenizer.json: {error}") from None
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True
        self._added = frozenset(self._tokenizer.get_added_tokens_decoder())

    def encode(self, documents: Documents) -> Tokens:
        import numpy as np

        from tokenmill.batches import Tokens

        encodings = self._tokenizer.encode_batch_fast(documents.texts.to_pylist(), add_special_tokens=False)
        ids = [np.array(encoding.ids, dtype=np.uint32) for encoding in encodings]
        lengths = np.array([len(one) for one in ids], dtype=np.int64)
        return Tokens(np.concatenate([np.empty(0, np.uint32), *ids]), lengths)

    def encode_one(self, text: str) -> npt.NDArray[np.uint32]:
        import numpy as np

        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.uint32)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=False))

    @property
    def is_byte_level(self) -> bool:
        """Whether tokens are spelled as bytes."""
        return type(self._tokenizer.decoder).__name__ == "ByteLevel"

    def token_bytes(self, token: int) -> bytes:
        """The bytes of a token of a byte-level tokenizer; none for a hole in the vocabulary."""
        text = self._tokenizer.id_to_token(token) or ""
        if token in self._added or not all(letter in BYTES_OF for letter in text):
            return text.encode()
        return bytes(BYTES_OF[letter] for letter in text)


def letters_of_bytes() -> dict[str, int]:
    """How byte-level BPE spells bytes: printable ones as themselves, the others by letters from U+0100 on."""
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(0x100) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(0x100 + i): byte for i, byte in enumerate(others)}


BYTES_OF = letters_of_bytes()
