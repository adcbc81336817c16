"""Inputs -> ordered units.

In: a resolved recipe. Out: the input files in order, and the units of work that cover them, in order. Reads
listings, footers and (for plain text) the first 16 MB, never all of the data. The plan depends on the recipe and
the files alone, never on the workers; and the cutting changes no byte of the output.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec

from tokenmill.errors import RecipeError, SourceError
from tokenmill.recipe import Recipe
from tokenmill.sources import Input, list_inputs, source_for

# Units of total / 64 text bytes: enough for every worker, few enough that receipts stay small; the bounds keep
# a unit worth its overhead and its loss after a death cheap (48 MB are about 0.6 s of work).
UNITS_WANTED = 64
MIN_UNIT_BYTES = 4_000_000
MAX_UNIT_BYTES = 48_000_000


class Span(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A stretch of one input: row groups, record batches or bytes `start` to `stop`, whichever its kind counts in."""

    input: int
    start: int
    stop: int
    n_bytes: int  # of text, as far as the listing tells


class Unit(msgspec.Struct, frozen=True, gc=False):
    """What one worker does at a time. Usually one span; small files share a unit."""

    index: int
    spans: tuple[Span, ...]

    @property
    def n_bytes(self) -> int:
        return sum(span.n_bytes for span in self.spans)


class Plan(msgspec.Struct, frozen=True):
    inputs: tuple[Input, ...]
    units: tuple[Unit, ...]
    unit_bytes: int  # how they were cut

    @property
    def n_bytes(self) -> int:
        """Bytes of text, as far as the listing tells: about right, but a guess for Arrow, gz and zst."""
        return sum(unit.n_bytes for unit in self.units)


def plan_units(recipe: Recipe, unit_bytes: int | None = None) -> Plan:
    """List the inputs and cut them into units."""
    return planned(list_inputs(recipe), recipe, unit_bytes)


def planned(inputs: Sequence[Input], recipe: Recipe, unit_bytes: int | None = None) -> Plan:
    """Cut inputs that are listed already into units."""
    if recipe.documents != "auto" and not any(entry.kind == "text" for entry in inputs):
        raise RecipeError("`--separator` and `--documents` are for plain text, and no input is", hint="leave them out")
    if recipe.where is not None and any(entry.kind == "text" for entry in inputs):
        raise RecipeError("`--where` needs columns or fields, and plain text has none", hint="leave it out")
    atoms = [source_for(entry).atom_bytes(entry, recipe) for entry in inputs]
    if not any(atoms):
        names = ", ".join(f"`{source}`" for source in recipe.sources)
        raise SourceError(f"nothing to read: {names} holds no documents", hint="are these the right files?")
    if unit_bytes is None:
        total = sum(sum(sizes) for sizes in atoms)
        unit_bytes = min(max(total // UNITS_WANTED, MIN_UNIT_BYTES), MAX_UNIT_BYTES)
    spans = (
        span
        for index, (entry, sizes) in enumerate(zip(inputs, atoms, strict=True))
        for span in cut_spans(index, sizes, unit_bytes, divisible=entry.divisible)
    )
    return Plan(tuple(inputs), tuple(pack_units(spans, unit_bytes)), unit_bytes)


def cut_spans(input_index: int, atom_bytes: list[int], unit_bytes: int, *, divisible: bool) -> list[Span]:
    """Cut one input into spans of about `unit_bytes`: between atoms, or between any two bytes if it is divisible."""
    if divisible and atom_bytes:
        (size,) = atom_bytes
        n_spans = max(1, -(-size // unit_bytes))
        cuts = [size * i // n_spans for i in range(n_spans + 1)]
        return [Span(input_index, a, b, b - a) for a, b in pairwise(cuts)]
    spans: list[Span] = []
    start, n_bytes = 0, 0
    for i, size in enumerate(atom_bytes):
        if n_bytes and n_bytes + size > unit_bytes:
            spans.append(Span(input_index, start, i, n_bytes))
            start, n_bytes = i, 0
        n_bytes += size
    if start < len(atom_bytes):
        spans.append(Span(input_index, start, len(atom_bytes), n_bytes))
    return spans


def pack_units(spans: Iterable[Span], unit_bytes: int) -> list[Unit]:
    """Put consecutive spans together until a unit is full: a thousand small files are not a thousand units."""
    units: list[Unit] = []
    current: list[Span] = []
    n_bytes = 0
    for span in spans:
        if current and n_bytes + span.n_bytes > unit_bytes:
            units.append(Unit(len(units), tuple(current)))
            current, n_bytes = [], 0
        current.append(span)
        n_bytes += span.n_bytes
    if current:
        units.append(Unit(len(units), tuple(current)))
    return units
