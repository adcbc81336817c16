"""tokenmill: raw text in, training shards out.

    import tokenmill

    manifest = tokenmill.prepare("corpus/", out="data")
    shards = tokenmill.open_shards("data")
    print(shards.decode(shards[0].tokens))

Importing this package is cheap: numpy, pyarrow and the tokenizer engines are loaded on first use.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tokenmill.conversion import Changes, convert, merge
    from tokenmill.errors import TokenmillError
    from tokenmill.forecasting import Forecast, forecast
    from tokenmill.inspect import Document, Shards, open_shards
    from tokenmill.manifest import Manifest
    from tokenmill.mill import prepare, prepare_recipe
    from tokenmill.pools import imap
    from tokenmill.recipe import Recipe, RunOptions
    from tokenmill.tokenizers import Tokenizer
    from tokenmill.verification import Verification, verify

_HOMES = {
    "Changes": "tokenmill.conversion",
    "Document": "tokenmill.inspect",
    "Forecast": "tokenmill.forecasting",
    "Manifest": "tokenmill.manifest",
    "Recipe": "tokenmill.recipe",
    "RunOptions": "tokenmill.recipe",
    "Shards": "tokenmill.inspect",
    "Tokenizer": "tokenmill.tokenizers",
    "TokenmillError": "tokenmill.errors",
    "Verification": "tokenmill.verification",
    "convert": "tokenmill.conversion",
    "forecast": "tokenmill.forecasting",
    "imap": "tokenmill.pools",
    "merge": "tokenmill.conversion",
    "open_shards": "tokenmill.inspect",
    "prepare": "tokenmill.mill",
    "prepare_recipe": "tokenmill.mill",
    "verify": "tokenmill.verification",
}

__all__ = [
    "Changes",
    "Document",
    "Forecast",
    "Manifest",
    "Recipe",
    "RunOptions",
    "Shards",
    "Tokenizer",
    "TokenmillError",
    "Verification",
    "__version__",
    "convert",
    "forecast",
    "imap",
    "merge",
    "open_shards",
    "prepare",
    "prepare_recipe",
    "verify",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'tokenmill' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
