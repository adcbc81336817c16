"""A finished output -> a dataset repository on the Hugging Face Hub, with a card.

    OUT/train.bin, OUT/index/ ...   first, in commits of some files each
    SHA256SUMS, the card            and
    manifest.json                   in the last commit: as on disk, without it an output is not there

What the repository has already, by SHA-256 of its listing, is not uploaded again: a push that was stopped goes on
when it is given again. Every file is hashed on its way, and a commit names none that is not what the manifest says.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from huggingface_hub import CommitOperationAdd, HfApi
from huggingface_hub.errors import HFValidationError, RemoteEntryNotFoundError
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils._validators import validate_repo_id

from tokenmill.card import MARK, card_text, without_secrets
from tokenmill.errors import DamageError, OutputError
from tokenmill.hub_errors import hub_errors
from tokenmill.manifest import MANIFEST, SUMS, Manifest, load_manifest
from tokenmill.shards.receipts import FileReceipt
from tokenmill.storage.addresses import is_address
from tokenmill.storage.local import is_whole

CARD = "README.md"
# A commit holds no more than this: what is committed needs not be looked at again. The Hub takes 128 commits an hour.
COMMIT_FILES = 100
COMMIT_BYTES = 10_000_000_000
OnFiles = Callable[[int, int], None]  # bytes done, and of how many


class Target(msgspec.Struct, frozen=True):
    """A dataset repository, or a folder in one."""

    repo: str
    folder: str

    def path(self, name: str) -> str:
        return f"{self.folder}/{name}" if self.folder else name


class Upload(msgspec.Struct, frozen=True):
    path: str  # in the repository
    n_bytes: int
    sha256: str
    content: Path | bytes


class Plan(msgspec.Struct, frozen=True):
    """What a push would upload into an empty repository."""

    out: Path
    target: Target
    manifest: Manifest
    data: tuple[Upload, ...]
    last: tuple[Upload, ...]  # the sums, the card, the manifest
    local_paths: bool  # whether the manifest has paths of this machine, which it keeps

    @property
    def files(self) -> tuple[Upload, ...]:
        return self.data + self.last

    @property
    def card(self) -> str:
        (content,) = (upload.content for upload in self.last if upload.path == self.target.path(CARD))
        assert isinstance(content, bytes)
        return content.decode()


class Pushed(msgspec.Struct, frozen=True):
    url: str
    uploaded: tuple[Upload, ...]
    n_there: int  # files that the repository had
    kept_card: bool  # whether it has a card of somebody else's, which was left as it is


def push_plan(out: Path, address: str) -> Plan:
    """Look at an output and at where it goes, without the network; refuse what must not be pushed."""
    target = target_of(address)
    manifest = load_manifest(out)
    receipts = [file for shard in manifest.shards for file in shard.files] + list(manifest.closing_files)
    if manifest.skipped_list is not None:
        receipts.append(manifest.skipped_list)
    for file in receipts:
        if not is_whole(out / file.file, file.n_bytes):
            message = f"`{file.file}` of `{out}` is missing, or not of the size that the manifest says"
            raise OutputError(message, hint=f"see what is wrong with `tokenmill verify {out}`")
    refuse_secrets(out, manifest)
    return Plan(
        out,
        target,
        manifest,
        data=tuple(upload_of(out, target, file) for file in receipts),
        last=tuple(
            Upload(target.path(name), len(content), hashlib.sha256(content).hexdigest(), content)
            for name, content in (
                (SUMS, sums_of(out)),
                (CARD, card_text(manifest, target.repo, target.folder).encode()),
                (MANIFEST, (out / MANIFEST).read_bytes()),
            )
        ),
        local_paths=not all(is_address(entry.path) for entry in manifest.inputs),
    )


def target_of(address: str) -> Target:
    """Take `hf://datasets/OWNER/NAME[/path]` apart."""
    match = re.fullmatch(r"hf://datasets/([^/@]+/[^/@]+)(?:/([^@]*?))?/?", address)
    if not match:
        raise OutputError(f"`{address}` is no dataset repository", hint="write it as `hf://datasets/OWNER/NAME`")
    repo, folder = match[1], match[2] or ""
    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise OutputError(f"`{repo}` is no name for a repository: {error}") from None
    if any(not re.fullmatch(r"[\w-][\w. -]*", part) for part in folder.split("/") if folder):
        raise OutputError(f"`{folder}` is no plain path of a folder (letters, digits, `.`, `_`, `-`)")
    return Target(repo, folder)


def upload_of(out: Path, target: Target, file: FileReceipt) -> Upload:
    return Upload(target.path(file.file), file.n_bytes, file.sha256, out / file.file)


def sums_of(out: Path) -> bytes:
    try:
        return (out / SUMS).read_bytes()
    except FileNotFoundError:
        raise OutputError(f"`{out}` has no {SUMS}", hint=f"see what is wrong with `tokenmill verify {out}`") from None


def refuse_secrets(out: Path, manifest: Manifest) -> None:
    """The manifest goes up as it is: it must not name an address with a user or password in it."""
    named = [*manifest.recipe.sources, *(entry.path for entry in manifest.inputs)]
    for address in [*named, *(parent.path for parent in manifest.parents)]:
        if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#]*@", address):
            raise OutputError(
                f"`{out / MANIFEST}` names an address with a user or password: {without_secrets(address)}",
                hint="prepare it again with credentials from the environment, not in the address",
            )


def push(plan: Plan, *, private: bool = False, message: str | None = None, on_files: OnFiles | None = None) -> Pushed:
    """Upload what the repository does not have yet; the manifest last."""
    target, api = plan.target, HfApi(library_name="tokenmill")
    message = message or f"Push {plan.manifest.totals.n_tokens:,} tokens with tokenmill"
    with hub_errors(target.repo, api.endpoint):
        url = api.create_repo(target.repo, repo_type="dataset", private=private or None, exist_ok=True)
        if private and not api.dataset_info(target.repo).private:  # which creating does not change
            raise OutputError(
                f"`{target.repo}` is there, and is public", hint="push to another one, or without --private"
            )
        there = listed(api, target)
        refuse_other_output(api, plan, there)
        kept_card = has_own_card(api, target, there)
        last = [upload for upload in plan.last if not (kept_card and upload.path == target.path(CARD))]
        missing = [upload for upload in plan.data if not is_there(upload, there)]
        missing_last = [upload for upload in last if not is_there(upload, there)]
        n_total, n_done = sum(upload.n_bytes for upload in missing + missing_last), 0
        for group in [*groups_of(missing), missing_last]:
            if group:
                commit(api, target, group, message)
            n_done += sum(upload.n_bytes for upload in group)
            if on_files:
                on_files(n_done, n_total)
    uploaded = (*missing, *missing_last)
    return Pushed(str(url), uploaded, len(plan.data) + len(last) - len(uploaded), kept_card)


def listed(api: HfApi, target: Target) -> dict[str, RepoFile]:
    """The files of the repository, or of the folder in it."""
    entries = api.list_repo_tree(target.repo, target.folder or None, recursive=True, repo_type="dataset")
    try:
        return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}
    except RemoteEntryNotFoundError:  # no such folder yet
        return {}


def refuse_other_output(api: HfApi, plan: Plan, there: dict[str, RepoFile]) -> None:
    """Another output, or files that are called like ours, must not be lost."""
    target = plan.target
    if target.path(MANIFEST) in there:
        try:
            other = msgspec.json.decode(fetched(api, target, MANIFEST), type=dict[str, object]).get("fingerprint")
        except msgspec.MsgspecError:
            other = None
        if other != plan.manifest.fingerprint:
            raise OutputError(
                f"`{target.repo}` holds another output already\n"
                f"  fingerprint: `{other}` there, `{plan.manifest.fingerprint}` here",
                hint=f"push to another repository, or to a folder: `hf://datasets/{target.repo}/NAME`",
            )
        return
    for upload in plan.files:
        if upload.path in there and upload.path != target.path(CARD) and not is_there(upload, there):
            raise OutputError(
                f"`{target.repo}` holds another `{upload.path}`, and no output of tokenmill",
                hint="push to another repository, or delete that file on the Hub",
            )


def has_own_card(api: HfApi, target: Target, there: dict[str, RepoFile]) -> bool:
    """Whether somebody wrote a card, or took our mark out of it to keep it."""
    return target.path(CARD) in there and MARK.encode() not in fetched(api, target, CARD)


def fetched(api: HfApi, target: Target, name: str) -> bytes:
    with TemporaryDirectory(prefix="tokenmill-") as folder:
        path = api.hf_hub_download(target.repo, target.path(name), repo_type="dataset", local_dir=folder)
        return Path(path).read_bytes()


def is_there(upload: Upload, there: dict[str, RepoFile]) -> bool:
    """Whether the repository has this very file. Small ones are known by the SHA-1 that git gives them."""
    entry = there.get(upload.path)
    if entry is None or entry.size != upload.n_bytes:
        return False
    if entry.lfs is not None:
        return entry.lfs.sha256 == upload.sha256
    content = upload.content if isinstance(upload.content, bytes) else upload.content.read_bytes()
    return entry.blob_id == hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def groups_of(uploads: list[Upload]) -> Iterator[list[Upload]]:
    """Yield what goes into one commit each."""
    group: list[Upload] = []
    for upload in uploads:
        if group and (len(group) == COMMIT_FILES or sum(u.n_bytes for u in group) + upload.n_bytes > COMMIT_BYTES):
            yield group
            group = []
        group.append(upload)
    if group:
        yield group


def commit(api: HfApi, target: Target, uploads: list[Upload], message: str) -> None:
    """Upload files, and commit them if each is what the manifest says."""
    additions = [CommitOperationAdd(upload.path, upload.content) for upload in uploads]
    api.preupload_lfs_files(target.repo, additions, repo_type="dataset", free_memory=False)
    for addition, upload in zip(additions, uploads, strict=True):
        if addition.upload_info.sha256.hex() != upload.sha256:
            raise DamageError(
                f"`{upload.content!s}` is not what its checksum says; nothing of it was published",
                hint="find what is damaged with `tokenmill verify`",
            )
    api.create_commit(target.repo, additions, commit_message=message, repo_type="dataset")
