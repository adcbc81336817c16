"""Sources on the Hub, pinned to a commit: looked up once, and from then on taken from the output itself."""

from __future__ import annotations

import msgspec

from tokenmill.recipe import Recipe
from tokenmill.storage.addresses import is_address, parsed


def pinned(recipe: Recipe, earlier: Recipe | None) -> Recipe:
    """Return the recipe with a commit in every address of the Hub.

    `earlier` is the recipe that an output was begun with: its commits are taken where they are of the same sources.
    """
    known = {str(parsed(source)._replace(revision=None)): source for source in hub_sources(earlier)} if earlier else {}
    sources = []
    for source in recipe.sources:
        if is_address(source) and not (address := parsed(source)).is_pinned:
            then = known.get(str(address._replace(revision=None)))
            if then is None:
                from tokenmill.storage.hub import pinned as pinned_address

                then = str(pinned_address(address))
            source = then
        sources.append(source)
    return msgspec.structs.replace(recipe, sources=tuple(sources))


def hub_sources(recipe: Recipe) -> list[str]:
    return [source for source in recipe.sources if is_address(source) and parsed(source).scheme == "hf"]
