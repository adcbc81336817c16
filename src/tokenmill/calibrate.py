"""Which engine does the work: the fast one, if it agrees with the reference on the user's own documents.

For the shipped vocabularies agreement was shown for every Unicode scalar value. For a file of the user's the first
documents of the corpus are encoded by both before the work begins.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import NamedTuple

import numpy as np

from tokenmill.care import NOT_THE_DOCUMENT
from tokenmill.plan import Plan
from tokenmill.recipe import Recipe
from tokenmill.sources import source_for
from tokenmill.tokenizers import Tokenizer

CALIBRATION_BYTES = 500_000
FAST = "gigatoken"


class EngineChoice(NamedTuple):
    use_reference: bool
    reason: str
    name: str
    version: str


def engine_choice(recipe: Recipe, plan: Plan) -> EngineChoice:
    """Return whether the reference must do the work, and why, or why not."""
    tokenizer = Tokenizer(recipe.tokenizer, recipe.pattern)
    if tokenizer.definition.proven and tokenizer.definition.fast is not None:
        # Loading it costs 0.3 s, and it is the workers that need it.
        return EngineChoice(False, tokenizer.definition.reason, FAST, version(FAST))
    reference = tokenizer.reference
    if tokenizer.engine is reference:
        return EngineChoice(True, tokenizer.engine_reason, reference.name, reference.version)
    if first_documents_agree(tokenizer, recipe, plan):
        return EngineChoice(False, tokenizer.engine_reason, tokenizer.engine.name, tokenizer.engine.version)
    reason = f"{FAST} and {reference.name} differ on the first documents of this corpus"
    return EngineChoice(True, reason, reference.name, reference.version)


def first_documents_agree(tokenizer: Tokenizer, recipe: Recipe, plan: Plan) -> bool:
    for span in plan.units[0].spans:
        entry = plan.inputs[span.input]
        for documents in source_for(entry).read(entry, span, recipe, CALIBRATION_BYTES):
            batch = next(documents.batches(CALIBRATION_BYTES))
            if len(batch):
                try:
                    fast, right = tokenizer.engine.encode(batch), tokenizer.reference.encode(batch)
                except NOT_THE_DOCUMENT:
                    raise
                except BaseException:  # a panic in a Rust library: the document is found and put aside later
                    return False
                same_lengths = np.array_equal(fast.doc_lengths, right.doc_lengths)
                return same_lengths and np.array_equal(fast.ids, right.ids)
    return True
