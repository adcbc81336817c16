"""Engines by what defines them. Importing this is cheap; making an engine loads its library."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tokenmill.tokenizers.definitions import Engine, Reference
    from tokenmill.tokenizers.vocabularies import Vocabulary


def tiktoken_reference(vocabulary: Vocabulary) -> Reference:
    from tokenmill.tokenizers.tiktoken import TiktokenEngine

    return TiktokenEngine(vocabulary)


def fast_by_ranks(vocabulary: Vocabulary, reference: Callable[[], Reference]) -> Engine:
    import gigatoken

    from tokenmill.tokenizers.disagreements import ODD_CODE_POINTS
    from tokenmill.tokenizers.gigatoken import GigatokenEngine

    assert vocabulary.pretokenizer is not None
    vocabulary.checked_bytes()
    tokenizer = gigatoken.Tokenizer.from_tiktoken(
        vocabulary.path, pretokenizer=vocabulary.pretokenizer, special_tokens={}
    )
    return GigatokenEngine(tokenizer, ODD_CODE_POINTS[vocabulary.pretokenizer], [], reference)
