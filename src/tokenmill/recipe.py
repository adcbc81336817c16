"""The two homes of options: `Recipe` (whatever changes a byte of the output) and `RunOptions` (the rest).

A recipe is frozen and strict: an unknown key is an error. Fields left at None take the default of the format,
which is that of the project the format is named after; `resolve` fills them in, and only a resolved recipe is
hashed and stored.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import tomllib
from pathlib import Path
from typing import Literal, get_args

import msgspec

from tokenmill.errors import RecipeError, SourceError, did_you_mean
from tokenmill.filters import Where
from tokenmill.machine import cpu_count
from tokenmill.shards import format_named
from tokenmill.sources.catalog import corpus_source, is_corpus, with_corpora
from tokenmill.storage.addresses import is_address, normalized

Eot = Literal["first", "last", "none"]
ExecutorName = Literal["processes", "inline", "datasets", "ray"]
DocumentsBy = Literal["auto", "separator", "file", "line", "paragraph"]


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything that changes bytes: the same recipe gives the same shards, whoever works on it."""

    sources: tuple[str, ...]  # files, folders, globs, addresses; absolute when resolved
    text_column: str = "text"
    documents: DocumentsBy = "auto"  # how plain text splits into documents
    separator: str | None = None
    tokenizer: str = "gpt2"
    pattern: str | None = None  # of a .tiktoken rank file
    eot: Eot | None = None
    eot_token: str | int | None = None  # by name or id; resolved to the id
    tokenizer_identity: str | None = None  # filled in: the digest of the tokenizer's behavior
    format: str = "nanogpt"
    name: str | None = None
    shard_tokens: int | None = None
    sequence_length: int | None = None  # tokens in a sample, for formats that have them
    where: str | None = None  # a condition on other columns
    min_chars: int | None = None
    max_chars: int | None = None
    limit_documents: int | None = None  # the first ones of the corpus
    limit_tokens: int | None = None  # as many whole documents as fit
    on_bad_document: Literal["fail", "skip"] = "fail"
    # A fraction of the documents, a number of documents, "shard" (the first one) or "none".
    val: float | int | str | None = None
    # "none", "numpy:SEED" (nanoGPT's own permutation) or "keyed:SEED" (constant memory, any size).
    shuffle: str | None = None
    parents: tuple[str, ...] = ()  # fingerprints of the outputs that this one is made of; filled in

    def resolve(self) -> Recipe:
        """Return this recipe with every default filled in and local sources absolute, or say what is wrong."""
        from tokenmill.tokenizers import Tokenizer
        from tokenmill.tokenizers.definitions import is_file

        try:  # a Recipe made in Python has had no types checked
            checked = msgspec.convert(msgspec.to_builtins(self), Recipe)
        except (msgspec.ValidationError, TypeError) as error:
            raise RecipeError(f"the recipe is malformed: {error}") from None
        name = str(Path.cwd() / self.tokenizer) if is_file(self.tokenizer) else self.tokenizer
        tokenizer = Tokenizer(name, self.pattern)
        if self.tokenizer_identity not in (None, tokenizer.identity):
            raise RecipeError(f"the tokenizer `{name}` is not the one that the recipe was made with")
        defaults = format_named(self.format).defaults
        eot = self.eot or defaults.eot
        resolved = msgspec.structs.replace(
            checked,
            sources=tuple(absolute_source(source) for source in self.sources),
            documents="separator" if self.separator is not None and self.documents == "auto" else self.documents,
            tokenizer=tokenizer.name,
            eot=eot,
            eot_token=None if eot == "none" else tokenizer.eot_id(self.eot_token),
            tokenizer_identity=tokenizer.identity,
            name=self.name or defaults.name,
            shard_tokens=defaults.shard_tokens if self.shard_tokens is None else self.shard_tokens,
            sequence_length=defaults.sequence_length if self.sequence_length is None else self.sequence_length,
            val=defaults.val if self.val is None else self.val,
            shuffle=self.shuffle or defaults.shuffle,
        )
        check_recipe(resolved)
        return resolved

    @property
    def is_shuffled(self) -> bool:
        """Whether documents stand in another order than that of the corpus."""
        return self.shuffle != "none"

    @property
    def waits_for_all(self) -> bool:
        """Whether the first token of the output is known only when all documents are counted."""
        return self.is_shuffled or isinstance(self.val, float)

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the resolved recipe; two outputs with the same one hold the same recipe."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()

    @classmethod
    def from_toml(cls, path: str | Path) -> Recipe:
        """Read a recipe file: the fields of this class as top-level keys."""
        return recipe_from_mapping(toml_mapping(path), where=f"`{path}`")


class RunOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How a run is carried out. Nothing here may change one byte of the output."""

    workers: int | None = None  # None: one for each core this process may use, within its CPU quota
    # Who encodes: worker processes, this process, `datasets.map`, or a Ray cluster, which writes the shards too.
    executor: ExecutorName = "processes"
    ray_address: str | None = None  # of the cluster; None: RAY_ADDRESS, or a session of this machine
    unit_bytes: int | None = None  # text in a unit; None: from the listing
    # Text in one call of the engine: small enough to stay in cache, large enough to make the call's cost vanish.
    batch_bytes: int = 5_000_000
    # A worker that makes no progress for so long is replaced. The longest batch of the slowest engine takes seconds.
    stall_seconds: float = 300.0
    retry_excluded: bool = False  # try again what went to quarantine in an earlier run
    disk_budget: int | None = None  # bytes of downloads at a time; None: four of the largest files, at least 1 GB
    keep_downloads: bool = False
    node: str | None = None  # "2/8" encodes the second of eight shares, and leaves the rest to a run without it
    scratch_budget: int | None = None  # bytes of segments, buckets and open shards at a time; None: what there is
    scratch: str | None = None  # the folder for a run whose output is in a store; None: the user's cache folder
    # Tokens that a shuffled run puts in order at once; it holds about three times that in memory.
    bucket_bytes: int = 64_000_000

    def __post_init__(self) -> None:
        if self.node is not None:
            from tokenmill.shares import check_share

            check_share(self.node, self)
        for name in ("workers", "unit_bytes", "batch_bytes", "bucket_bytes", "disk_budget", "scratch_budget"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise RecipeError(f"{name} must be at least 1, not {value}")
        if self.stall_seconds <= 0:
            raise RecipeError(f"stall_seconds must be more than 0, not {self.stall_seconds}")
        if self.ray_address is not None and self.executor != "ray":
            raise RecipeError("an address of Ray is given, and Ray is not the executor", hint="pass `--executor ray`")
        if self.executor not in (names := get_args(ExecutorName)):
            raise RecipeError(f"unknown executor `{self.executor}`", hint=f"choose one of {', '.join(names)}")

    @property
    def n_workers(self) -> int:
        return cpu_count() if self.workers is None else self.workers


def recipe_dtype(recipe: Recipe) -> Literal["<u2", "<u4"]:
    """The type of the ids of a resolved recipe before they are in shards, end-of-text included, as numpy spells it."""
    return "<u2" if largest_id(recipe) < 2**16 else "<u4"


def shard_dtype(recipe: Recipe) -> str:
    """The type of the ids in the shards: the format's choice."""
    return format_named(recipe.format).dtype(largest_id(recipe))


def largest_id(recipe: Recipe) -> int:
    from tokenmill.tokenizers import Tokenizer

    return max(Tokenizer(recipe.tokenizer, recipe.pattern).vocab_size - 1, int(recipe.eot_token or 0))


def check_recipe(recipe: Recipe) -> None:
    """Refuse what could not work, before any work is done."""
    if not recipe.sources:
        raise RecipeError("no source given", hint="name a file, a folder, a glob, or `sample`")
    check_name(recipe)
    if recipe.documents == "separator" and not recipe.separator:
        raise RecipeError(
            "the separator is empty", hint="pass `--separator STRING`, or `--documents file|line|paragraph`"
        )
    if recipe.separator is not None and recipe.documents != "separator":
        raise RecipeError("`separator` and `documents` exclude each other")
    if recipe.shard_tokens is not None and recipe.shard_tokens < 1:
        raise RecipeError(f"shard_tokens must be at least 1, not {recipe.shard_tokens}")
    check_samples(recipe)
    check_val(recipe)
    if recipe.where is not None:
        Where(recipe.where)
    for name in ("min_chars", "max_chars", "limit_documents", "limit_tokens"):
        value = getattr(recipe, name)
        if value is not None and value < 1:
            raise RecipeError(f"{name} must be at least 1, not {value}")
    if recipe.min_chars and recipe.max_chars and recipe.min_chars > recipe.max_chars:
        raise RecipeError(f"min_chars {recipe.min_chars:,} is above max_chars {recipe.max_chars:,}")
    assert recipe.shuffle is not None
    shuffle_kind_and_seed(recipe.shuffle)
    format_named(recipe.format).check(recipe)


def check_name(recipe: Recipe) -> None:
    """Whatever is in a name becomes part of a path."""
    if recipe.name and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", recipe.name):
        raise RecipeError(f"name `{recipe.name}` is not a plain file name prefix (letters, digits, `.`, `_`, `-`)")


def check_samples(recipe: Recipe) -> None:
    """Only formats with samples have a sequence length, and their shards hold whole samples."""
    n_tokens = recipe.sequence_length
    if format_named(recipe.format).cut != "samples":
        if n_tokens is not None:
            raise RecipeError(f"the {recipe.format} format has no samples, so `--sequence-length` has no meaning")
        return
    if n_tokens is None or n_tokens < 1:
        raise RecipeError(f"sequence_length must be at least 1, not {n_tokens}")
    if recipe.shard_tokens is not None and recipe.shard_tokens % n_tokens:
        raise RecipeError(
            f"a shard of {recipe.shard_tokens:,} tokens does not hold whole samples of {n_tokens:,}",
            hint=f"pass `--shard-tokens {max(1, recipe.shard_tokens // n_tokens) * n_tokens}`",
        )


def check_val(recipe: Recipe) -> None:
    match recipe.val:
        case float(fraction) if not 0 < fraction < 1:
            raise RecipeError(
                f"val fraction must lie between 0 and 1, not {fraction}",
                hint="a fraction like `--val 0.01`, a number of documents like `--val 1000`, `shard` or `none`",
            )
        case int(count) if count < 1:
            raise RecipeError(
                f"val must be at least 1 document, not {count}", hint="for no validation split: `--val none`"
            )
        case str(word) if word not in ("shard", "none"):
            raise RecipeError(f"val `{word}` is not known", hint="a fraction, a number of documents, `shard` or `none`")


def shuffle_kind_and_seed(shuffle: str) -> tuple[str, int]:
    """Return ("none", 0), ("numpy", seed) or ("keyed", seed)."""
    if shuffle == "none":
        return "none", 0
    kind, _, seed = shuffle.rpartition(":")
    if kind not in ("numpy", "keyed") or not re.fullmatch(r"\d{1,18}", seed):
        raise RecipeError(
            f"shuffle `{shuffle}` is not known",
            hint="`none`, `keyed:SEED`, or `numpy:SEED` for nanoGPT's own permutation, with a seed from 0 to 10^18 - 1",
        )
    return kind, int(seed)


def absolute_source(source: str) -> str:
    """A source that means the same from every working folder: the address of a corpus, the whole path of a file."""
    if is_corpus(source):
        return corpus_source(source).source
    if is_address(source):
        return normalized(source)
    try:
        source.encode()
    except UnicodeEncodeError:
        raise SourceError(f"the name {source!r} is not UTF-8", hint="rename it") from None
    path = Path(os.path.expanduser(source))  # noqa: PTH111 - Path.expanduser raises on a file called ~x
    if glob.has_magic(source) and not path.exists() and not path.is_absolute():
        return str(Path(glob.escape(str(Path.cwd()))) / path)
    return str(Path.cwd() / path)


def toml_mapping(path: str | Path) -> dict[str, object]:
    try:
        return tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(f"recipe file `{path}` not found") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise RecipeError(f"recipe file `{path}` is not TOML: {error}") from None


def recipe_from_mapping(mapping: dict[str, object], *, where: str) -> Recipe:
    """Check a mapping against the recipe's fields; sizes, val and shuffle may be spelled as on the command line.

    Names of the catalog become addresses, of the version that the key `version` names.
    """
    names = [*(field.name for field in msgspec.structs.fields(Recipe)), "version"]
    for key in mapping:
        if key not in names:
            raise RecipeError(f"unknown key `{key}` in {where}", hint=did_you_mean(key, names))
    fields = dict(mapping)
    if isinstance(sources := fields.get("sources"), str):
        fields["sources"] = [sources]
    fields = with_corpora(fields, where)
    for name in ("shard_tokens", "sequence_length", "min_chars", "max_chars", "limit_documents", "limit_tokens"):
        if isinstance(value := fields.get(name), str):
            fields[name] = parse_count(value)
    if isinstance(val := fields.get("val"), str):
        fields["val"] = parse_val(val)
    if isinstance(shuffle := fields.get("shuffle"), str | int):
        fields["shuffle"] = parse_shuffle(str(shuffle))
    try:
        return msgspec.convert(fields, Recipe)
    except msgspec.ValidationError as error:
        raise RecipeError(f"{where}: {error}") from None


_UNITS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "G": 10**9, "T": 10**12}


def parse_count(text: str) -> int:
    """Return the whole number that `100M`, `1.5B` or `10_000` stands for."""
    match = re.fullmatch(r"(\d[\d_]*(?:\.\d+)?)([KMBGT]?)", text.strip(), flags=re.IGNORECASE)
    if match:
        from decimal import Decimal

        number = Decimal(match[1].replace("_", "")) * _UNITS[match[2].upper()]
        if number == int(number):
            return int(number)
    raise RecipeError(f"`{text}` is not a whole number", hint="sizes look like `100M`, `1.5B` or `10_000`")


def parse_bytes(text: str) -> int:
    """Return the bytes that `40M`, `2GB` or `20_000_000` stands for."""
    match = re.fullmatch(r"(.*\d)\s*([KMGT]?)B?", text.strip(), flags=re.IGNORECASE)
    try:
        return parse_count(match[1] + match[2] if match else text)
    except RecipeError:
        raise RecipeError(f"`{text}` is no size", hint="sizes look like `500M`, `40GB` or `20_000_000`") from None


def parse_val(text: str) -> float | int | str:
    """Return what `--val` stands for: a fraction, a number of documents, or a word."""
    if text.isalpha():
        return text
    if re.fullmatch(r"\d*\.\d+|\d+(\.\d*)?e-\d+", text, flags=re.IGNORECASE):
        return float(text)
    return parse_count(text)


def parse_shuffle(text: str) -> str:
    """Return the recipe's word for `--shuffle SEED`: a bare seed means the keyed permutation."""
    return f"keyed:{text}" if text.isdecimal() else text
