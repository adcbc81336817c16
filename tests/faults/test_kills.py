"""SIGKILL of the whole process group at random moments until the run finishes: the bytes are an undisturbed run's."""

import random

import pytest
from harness import digests, tally
from kills import RECIPES, torture

N_KILLS = {"nanogpt, shuffled": 3, "llmc": 2, "npy": 2}  # the others once each


@pytest.mark.parametrize("name", RECIPES)
def test_killed_at_random_moments_and_gone_on(name, corpus, forks, tmp_path):
    recipe = {"sources": corpus, **RECIPES[name]}
    whole = forks.run({"recipe": recipe, "out": str(tmp_path / "whole"), "options": {"executor": "inline"}})
    assert whole.code == 0, whole.said
    told = torture(recipe, tmp_path / "out", digests(tmp_path / "whole"), random.Random(name), N_KILLS.get(name, 1))
    assert told.problems == []
    tally("SIGKILL of the whole process group at a random moment", "same bytes", told.n_kills)
