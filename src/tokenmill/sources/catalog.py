"""Corpora that are known by name: a name and a version in, an address on the Hugging Face Hub out.

    fineweb-edu, 10B  ->  hf://datasets/HuggingFaceFW/fineweb-edu/sample/10BT, column `text`

The facts are in catalog.toml, which is read when the first of them is asked for. Names are put in place of addresses
before a recipe is made: a recipe holds addresses, and stays right when the catalog changes. Only `sample`, which ships
with the package, stays a name.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import msgspec

from tokenmill.errors import RecipeError, SourceError, did_you_mean

PACKAGE = Path(__file__).parent.parent

# What needs no address.
CATALOG: dict[str, Path] = {
    # 420 passages of public-domain English books, 1.6 MB of text, 368,238 GPT-2 tokens.
    "sample": PACKAGE / "samples" / "sample.parquet",
}
HUB = "hf://datasets/"


class Version(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of a corpus that can be asked for, and how large it is, as far as known."""

    path: str  # a folder or a glob below the repository
    aliases: tuple[str, ...] = ()
    n_documents: int | None = msgspec.field(default=None, name="documents")
    n_bytes: int | None = msgspec.field(default=None, name="bytes")  # of the files, as they are fetched
    n_tokens: int | None = msgspec.field(default=None, name="tokens")
    tokens_by: str = "gpt2"
    n_files: int | None = msgspec.field(default=None, name="files")
    source: str | None = None  # where the figures come from


class Pattern(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Versions that are too many to list."""

    form: str  # as people read it
    match: str
    path: str  # with {version} in it
    example: str


class Corpus(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An entry of the catalog."""

    title: str
    versions: dict[str, Version]
    repository: str | None = None  # None: ships with the package
    license: str | None = None  # as the Hub spells it
    text_column: str = "text"
    default: str | None = None
    pattern: Pattern | None = None
    gated: bool = False
    note: str | None = None

    @property
    def homepage(self) -> str | None:
        return self.repository and f"https://huggingface.co/datasets/{self.repository}"

    @property
    def version_names(self) -> list[str]:
        return [*self.versions, *([self.pattern.form] if self.pattern else [])]


class CorpusSource(msgspec.Struct, frozen=True, kw_only=True):
    """What a name and a version stand for."""

    name: str
    version: str
    source: str
    text_column: str
    size: Version


@cache
def corpora() -> dict[str, Corpus]:
    """All entries of the catalog, by name."""
    text = Path(__file__).with_name("catalog.toml").read_text(encoding="utf-8")
    return msgspec.convert(tomllib.loads(text), dict[str, Corpus])


def corpus_named(name: str) -> Corpus:
    if name not in corpora():
        raise SourceError(f"no corpus is called `{name}`", hint=did_you_mean(name, list(corpora())))
    return corpora()[name]


def corpus_source(name: str, version: str | None = None) -> CorpusSource:
    """Return the address of a version of a corpus: of its default version, unless another is named."""
    corpus = corpus_named(name)
    if version is None and corpus.default is None:
        raise RecipeError(f"say which version of `{name}`: it has no default", hint=versions_hint(corpus))
    found, size = version_of(corpus, name, version or str(corpus.default))
    source = name if corpus.repository is None else f"{HUB}{corpus.repository}/{size.path}"
    return CorpusSource(name=name, version=found, source=source, text_column=corpus.text_column, size=size)


def version_of(corpus: Corpus, name: str, wanted: str) -> tuple[str, Version]:
    """Find a version by its name or another that people use for it, in capitals or not."""
    for found, version in corpus.versions.items():
        if wanted.lower() in (found.lower(), *(alias.lower() for alias in version.aliases)):
            return found, version
    if corpus.pattern:
        for spelled in (wanted, wanted.upper(), wanted.lower()):
            if re.fullmatch(corpus.pattern.match, spelled):
                return spelled, Version(path=corpus.pattern.path.format(version=spelled))
    raise RecipeError(f"`{name}` has no version `{wanted}`", hint=versions_hint(corpus))


def versions_hint(corpus: Corpus) -> str:
    example = f", such as {corpus.pattern.example}" if corpus.pattern else ""
    return f"pass `--version` with one of {', '.join(corpus.version_names)}{example}"


def is_corpus(source: str) -> bool:
    """Whether a source is a name of the catalog. A file or folder that is called so comes first."""
    return source in corpora() and not Path(source).exists()


def with_corpora(fields: dict[str, object], where: str) -> dict[str, object]:
    """Replace names and version in the fields of a recipe by addresses and the column that holds the text of these."""
    version, sources = fields.pop("version", None), fields.get("sources")
    if not isinstance(version, str | None):
        raise RecipeError(f"{where}: the version {version!r} is no text", hint=f'write it in quotes: "{version}"')
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        return fields  # no recipe, as its own check will say
    addresses, column = with_addresses(sources, version, any_column="text_column" in fields)
    return ({"text_column": column} if column else {}) | fields | {"sources": addresses}


def with_addresses(sources: list[str], version: str | None, any_column: bool) -> tuple[list[str], str | None]:
    """Put addresses in the place of names; return them, and the column in which all of these have their text."""
    addresses: list[str] = []
    columns: dict[str, str] = {}
    for source in sources:
        if not is_corpus(source):
            if version is not None:
                raise no_versions(source)
            addresses.append(source)
            continue
        found = corpus_source(source, version)
        addresses.append(found.source)
        columns[source] = found.text_column
    if not any_column and len(set(columns.values())) > 1:
        raise RecipeError(
            "the corpora have their text in different columns: "
            + ", ".join(f"`{column}` of {name}" for name, column in columns.items()),
            hint="prepare them apart, and `tokenmill merge` the outputs",
        )
    return addresses, next(iter(columns.values()), None)


def no_versions(source: str) -> RecipeError | SourceError:
    if Path(source).exists():
        return RecipeError(
            f"`{source}` is on disk, and only corpora of the catalog have versions", hint="leave out `--version`"
        )
    return SourceError(
        f"`--version` is for corpora of the catalog, and `{source}` is none of them",
        hint=did_you_mean(source, list(corpora())),
    )


def chosen_by_default(sources: Iterable[str]) -> list[CorpusSource]:
    """Return what the names among the sources stand for, where there was a choice."""
    names = [source for source in sources if is_corpus(source)]
    return [corpus_source(name) for name in names if len(corpus_named(name).version_names) > 1]


def split_address(address: str) -> tuple[str, str] | None:
    """Return repository and path of an address of a data set on the Hub, without its revision."""
    match = re.fullmatch(r"hf://datasets/([^/@]+/[^/@]+)(?:@(?:refs/[^/]+/)?[^/]+)?(?:/(.*))?", address)
    return (match[1], (match[2] or "").strip("/")) if match else None


def corpus_at(address: str) -> Corpus | None:
    """Return the corpus whose repository an address is in."""
    parts = split_address(address)
    found = (corpus for corpus in corpora().values() if parts and parts[0].lower() == (corpus.repository or "").lower())
    return next(found, None)


def license_of(address: str) -> str | None:
    """Return the license of the repository that an address is in, where the catalog knows it."""
    corpus = corpus_at(address)
    return corpus.license if corpus else None


def known_size(address: str) -> Version | None:
    """Return how large the data at an address is, if it is a version of the catalog; its figures may be None."""
    corpus, parts = corpus_at(address), split_address(address)
    if corpus is None or parts is None:
        return corpus_source(address).size if address in CATALOG else None
    return next((version for version in corpus.versions.values() if version.path == parts[1]), None)
