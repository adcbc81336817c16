"""Budgets of disk: refused beforehand, with an option that would fit."""

import pytest

from tokenmill.errors import RecipeError
from tokenmill.forecasting import check_scratch, scratch_bytes
from tokenmill.plan import Plan, Span, Unit
from tokenmill.recipe import Recipe, RunOptions, parse_bytes

# A corpus of 46 GB in 958 units, as FineWeb-Edu 10B is: 20 GB of tokens.
PLAN = Plan((), tuple(Unit(i, (Span(0, i, i + 1, 48_000_000),)) for i in range(958)), 48_000_000)
TOKEN_BYTES = 20_000_000_000


def refusal(recipe: Recipe, budget: int, *, away: bool = False) -> RecipeError:
    with pytest.raises(RecipeError) as refused:
        check_scratch(recipe.resolve(), PLAN, RunOptions(workers=2, scratch_budget=budget), TOKEN_BYTES, away=away)
    return refused.value


def test_a_shuffle_that_does_not_fit_names_no_shuffle():
    error = refusal(Recipe(sources=("sample",), format="llmc", shuffle="keyed:1"), 1_000_000_000)
    assert error.hint == "`--no-shuffle` would fit"


def test_shards_that_do_not_fit_name_shard_tokens():
    error = refusal(Recipe(sources=("sample",), format="llmc", shard_tokens=1_000_000_000), 1_000_000_000)
    assert error.hint == "`--shard-tokens 100M` would fit"


def test_nanogpts_one_file_names_a_format_with_shards():
    error = refusal(Recipe(sources=("sample",)), 5_000_000_000, away=True)
    assert error.hint == "`--format llmc --no-shuffle --shard-tokens 100M` would fit"


def test_where_nothing_fits_the_number_is_named():
    error = refusal(Recipe(sources=("sample",), format="llmc"), 1000)
    assert "would fit" not in error.hint
    assert "--scratch-budget" in error.hint


def test_what_fits_is_not_refused():
    recipe = Recipe(sources=("sample",), format="llmc").resolve()
    needed = scratch_bytes(recipe, PLAN, RunOptions(workers=2), TOKEN_BYTES, away=False)
    check_scratch(recipe, PLAN, RunOptions(workers=2, scratch_budget=needed), TOKEN_BYTES, away=False)


@pytest.mark.parametrize(
    ("text", "n_bytes"), [("40M", 40_000_000), ("2GB", 2 * 10**9), ("20_000", 20_000), ("1.5 GB", 1_500_000_000)]
)
def test_sizes_are_read(text, n_bytes):
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "many", "10 parsecs", "-1"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(RecipeError, match="is no size"):
        parse_bytes(text)
