"""Manifest -> the dataset card: what an output is, how to read it, how it was made, and how to check it.

Nothing in a card is secret: of local files it has names relative to the source, never the folders above, and of
addresses neither user nor query. Names come from others, so whatever they hold, they cannot break out of the place
that they are put in.
"""

from __future__ import annotations

import glob
import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import PurePosixPath

import msgspec

from tokenmill.errors import TokenmillError
from tokenmill.manifest import Manifest
from tokenmill.markdown import code, fenced, one_line, plain, quoted, table
from tokenmill.recipe import Recipe
from tokenmill.shards import format_named
from tokenmill.sources import catalog
from tokenmill.storage.addresses import glob_prefix, is_address, redacted

MARK = "<!-- Written by `tokenmill push`; without this line, it leaves the card as it is. -->"
MAX_LISTED = 20
# How many documents, in the words of the Hub.
SIZES = ("n<1K", "1K<n<10K", "10K<n<100K", "100K<n<1M", "1M<n<10M", "10M<n<100M", "100M<n<1B")
LARGE_SIZES = ("1B<n<10B", "10B<n<100B", "100B<n<1T", "n>1T")
EOT_PLACES = {"first": "before each document", "last": "behind each document", "none": "left out"}
# Formats whose files are ids behind so many bytes of header, and nothing else.
FLAT_HEADERS = {"nanogpt": 0, "llmc": 1024, "megatron": 0, "datatrove": 0, "olmo": 0}
UNFLAGGED = ("sources", "tokenizer_identity", "parents")  # fields of a recipe that `prepare` has no flag for


def card_text(manifest: Manifest, repo: str, folder: str = "") -> str:
    """The README.md of a dataset repository that holds an output, or holds it in a folder."""
    sections = [
        f"{front_matter(manifest, repo)}\n{MARK}\n\n# {repo.split('/')[-1]}",
        introduction(manifest),
        f"## Read it\n\n{reading(manifest, repo, folder)}",
        f"## Tokenizer\n\n{tokenizer_table(manifest)}",
        f"## Sources\n\n{sources_table(manifest)}",
        f"## Recipe\n\n{recipe_text(manifest)}",
        f"## Check it\n\n{checking(repo, folder)}",
    ]
    return "\n\n".join(sections) + "\n"


def front_matter(manifest: Manifest, repo: str) -> str:
    """What the Hub reads: YAML between dashes. Every value is a JSON string, which is YAML too."""
    size = (SIZES + LARGE_SIZES)[max(0, min(len(str(manifest.totals.n_documents)) - 3, 10))]
    lists = {"task_categories": ["text-generation"], "size_categories": [size]}
    licenses = known_licenses(manifest)
    if licenses:
        lists["license"] = [name if is_license_id(name) else "other" for name in licenses]
    lists["tags"] = ["tokenized", "tokenmill", manifest.recipe.format]
    lines = [f"pretty_name: {quoted(repo.split('/')[-1])}"]
    for key, values in lists.items():
        lines += [f"{key}:", *(f"- {quoted(value)}" for value in dict.fromkeys(values))]
    if manifest.recipe.format == "parquet":
        lines += ["configs:", "- config_name: default", "  data_files:"]
        for split in manifest.split_totals():
            name = "validation" if split == "val" else split
            lines += [f"  - split: {quoted(name)}", f"    path: {quoted(f'**/{split}-*.parquet')}"]
    else:
        lines.append("viewer: false")  # it would show our indexes
    return "\n".join(["---", *lines, "---"])


def introduction(manifest: Manifest) -> str:
    totals, recipe = manifest.totals, manifest.recipe
    trainers = format_named(recipe.format).trainers
    rows = [
        (code(split), f"{n_shards:,}", f"{n_documents:,}", f"{n_tokens:,}")
        for split, (n_shards, n_documents, n_tokens) in manifest.split_totals().items()
    ]
    left_out = sum(manifest.skipped.values()) + len(manifest.excluded)
    note = f"\n\n{left_out:,} documents were left out: `manifest.json` says why." if left_out else ""
    return (
        f"{totals.n_tokens:,} tokens of {totals.n_documents:,} documents, {totals.n_text_bytes:,} bytes of text, as"
        f" training shards in the format {code(recipe.format)} ({plain(trainers)}). Made with tokenmill"
        f" {plain(manifest.tokenmill)}.\n\n" + table(("split", "shards", "documents", "tokens"), rows) + note
    )


def reading(manifest: Manifest, repo: str, folder: str) -> str:
    """A few lines of Python that work as they are."""
    recipe, dtype = manifest.recipe, manifest.tokenizer.dtype
    shard = next((shard for shard in manifest.shards if shard.split == "train"), manifest.shards[0])
    path = f"folder + {quoted(f'/{shard.file}')}"
    imports, lines = ["import numpy as np"], []
    if recipe.format in FLAT_HEADERS:
        offset = f", offset={FLAT_HEADERS[recipe.format]}" if FLAT_HEADERS[recipe.format] else ""
        lines = [f'tokens = np.memmap({path}, dtype="{dtype}", mode="r"{offset})']
    elif recipe.format == "npy":
        lines = [f'tokens = np.load({path}, mmap_mode="r")']
    elif recipe.format == "parquet":
        imports = ["import pyarrow.parquet as pq"]
        lines = [f'tokens = pq.read_table({path})["input_ids"][0].as_py()  # of the first document']
    else:
        imports = ["import tokenmill"]
        lines = ["tokens = tokenmill.open_shards(folder)[0].tokens  # of the first document"]
    where = f", allow_patterns={quoted(f'{folder}/*')}" if folder else ""
    inside = f" + {quoted(f'/{folder}')}" if folder else ""
    download = f'snapshot_download("{repo}", repo_type="dataset"{where}){inside}'
    program = [*imports, "from huggingface_hub import snapshot_download", "", f"folder = {download}", *lines]
    text = fenced("python", "\n".join([*program, "print(len(tokens), tokens[:10])"]))
    shown = fenced("bash", "tokenmill inspect FOLDER --doc 0")
    return f"{text}\n\nA document as text, and the file and row that it came from:\n\n{shown}"


def tokenizer_table(manifest: Manifest) -> str:
    tokenizer, eot = manifest.tokenizer, manifest.recipe.eot or "none"
    end = "none" if tokenizer.eot_token is None else f"{tokenizer.eot_token}, {EOT_PLACES[eot]}"
    rows = [
        ("name", code(shown_source(tokenizer.name))),
        ("identity", code(tokenizer.identity)),
        ("vocabulary", f"{tokenizer.vocab_size:,} ids"),
        ("end-of-text", end),
        ("type of the ids", code(tokenizer.dtype)),
        ("checked", f"{tokenizer.n_checked_documents:,} documents encoded again by the reference: equal"),
    ]
    return table(("tokenizer", ""), rows if tokenizer.n_checked_documents else rows[:-1])


def sources_table(manifest: Manifest) -> str:
    """The sources with what came from each, and the names of the first files."""
    counts: dict[str, Counter[str]] = {source: Counter() for source in manifest.recipe.sources}
    for entry in manifest.inputs:
        source = source_of(entry.path, manifest.recipe.sources)
        counts[source] += Counter(files=1, documents=entry.n_documents, tokens=entry.n_tokens)
    rows = [
        (
            code(shown_source(source)),
            *(f"{found[key]:,}" for key in ("files", "documents", "tokens")),
            license_cell(source),
        )
        for source, found in counts.items()
    ]
    names = [shown_input(entry.path, manifest.recipe.sources) for entry in manifest.inputs]
    listed = [f"- {code(name)}" for name in names[:MAX_LISTED]]
    if len(names) > MAX_LISTED:
        listed.append(f"- and {len(names) - MAX_LISTED:,} more: `manifest.json` has all, with their checksums")
    heads = ("source", "files", "documents", "tokens", "license")
    return table(heads, rows) + "\n\nIts files:\n\n" + "\n".join(listed)


def recipe_text(manifest: Manifest) -> str:
    """What differs from the defaults, the fingerprint, and the command that makes it again."""
    recipe = manifest.recipe
    changed = {key: str(value) for key, value in changed_fields(recipe).items()}
    if "tokenizer" in changed:
        changed["tokenizer"] = shown_source(recipe.tokenizer)
    rows = [(code(key), code(value)) for key, value in changed.items()]
    parts = [f"Fingerprint: {code(manifest.fingerprint)}"]
    if rows:
        parts.append("What differs from the defaults:\n\n" + table(("field", "value"), rows))
    if manifest.parents:
        names = "\n".join(f"- {code(parent.fingerprint)}" for parent in manifest.parents)
        parts.append(f"Made from other outputs of tokenmill, with these fingerprints:\n\n{names}")
    else:
        words = ["tokenmill", "prepare", *map(shown_source, recipe.sources), "-o", "OUT"]
        words += [word for key, value in changed.items() for word in (f"--{key.replace('_', '-')}", value)]
        parts.append(
            "The same bytes again, from the same sources:\n\n" + fenced("bash", shlex.join(map(one_line, words)))
        )
    return "\n\n".join(parts)


def changed_fields(recipe: Recipe) -> dict[str, object]:
    """The fields that have a flag, and another value than the format gives them."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(Recipe)}
    defaults |= format_named(recipe.format).defaults._asdict()
    names = [name for name in defaults if name not in UNFLAGGED]
    changed = {name: getattr(recipe, name) for name in names if getattr(recipe, name) != defaults[name]}
    if recipe.separator is not None:
        changed.pop("documents", None)  # which follows from it
    if recipe.eot_token == default_eot_token(recipe):
        changed.pop("eot_token", None)
    return changed


def default_eot_token(recipe: Recipe) -> int | None:
    from tokenmill.tokenizers import Tokenizer

    try:
        return None if recipe.eot == "none" else Tokenizer(recipe.tokenizer, recipe.pattern).eot_token
    except TokenmillError:  # the vocabulary has several, or the tokenizer's file is gone
        return None


def checking(repo: str, folder: str) -> str:
    where = f"FOLDER/{folder}" if folder else "FOLDER"
    download = f"hf download {repo} --repo-type dataset --local-dir FOLDER"
    verify = shlex.join(["tokenmill", "verify", where])
    sums = f"cd {shlex.quote(where)} && sha256sum -c SHA256SUMS"
    commands = fenced("bash", f"{download}\n{verify}   # checksums, headers, counts, ids\n{sums}   # checksums alone")
    return (
        f"`SHA256SUMS` has the SHA-256 of every file, and `manifest.json` says what each of them holds.\n\n{commands}"
    )


def known_licenses(manifest: Manifest) -> list[str]:
    """The licenses of the sources, if that of every source is known: one that is not may be any."""
    found = [license_of(source) for source in manifest.recipe.sources]
    return [name for name in dict.fromkeys(found) if name] if all(found) else []


def license_of(source: str) -> str | None:
    corpus = catalog.corpora().get(source)
    return corpus.license if corpus else catalog.license_of(source)


def license_cell(source: str) -> str:
    name = license_of(source)
    return "not known" if name is None else code(name)


def is_license_id(name: str) -> bool:
    return re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name) is not None


def shown_source(source: str) -> str:
    """A source without what is nobody's business: the folders above it, user, password and query."""
    if is_address(source):
        return without_secrets(source)
    path = PurePosixPath(source)
    base = glob_base(path)
    return str(path.relative_to(base)) if base != path else path.name or source


def shown_input(path: str, sources: Sequence[str]) -> str:
    """An input's name relative to the source that it came from."""
    if is_address(path):
        return without_secrets(path)
    place, source = PurePosixPath(path), PurePosixPath(source_of(path, sources))
    base = glob_base(source)
    if place.is_relative_to(base) and place != base:
        inside = str(place.relative_to(base))
        return inside if base != source else f"{source.name}/{inside}"
    return place.name


def source_of(path: str, sources: Sequence[str]) -> str:
    """The source that an input came from: the closest one above it."""
    path, bases = without_revision(path), [base_of(source) for source in sources]
    above = [i for i, base in enumerate(bases) if path == base or path.startswith(base.rstrip("/") + "/")]
    return sources[max(above, key=lambda i: len(bases[i]))] if above else sources[0]


def base_of(source: str) -> str:
    """What the paths of all inputs of a source begin with."""
    if is_address(source):
        return without_revision(glob_prefix(source))
    return str(glob_base(PurePosixPath(source)))


def glob_base(path: PurePosixPath) -> PurePosixPath:
    """The folder in which a glob begins to look; of any other path, the path itself."""
    plain_parts: list[str] = []
    for part in path.parts:
        if glob.has_magic(part):
            break
        plain_parts.append(part)
    return PurePosixPath(*plain_parts)


def without_secrets(address: str) -> str:
    """An address without user, password and query; a `?` of a glob, in a bucket or on the Hub, stays."""
    return re.sub(r"\?(\*\*\*|[^/]*=.*)$", "", redacted(address), flags=re.DOTALL)


def without_revision(address: str) -> str:
    return re.sub(r"^(hf://datasets/[^/@]+/[^/@]+)@[^/]+", r"\1", address)
