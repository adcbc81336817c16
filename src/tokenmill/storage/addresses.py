"""Addresses of files that are not on this machine, and what of an address may be shown.

    hf://datasets/OWNER/NAME[@REVISION]/path/or/glob     a data set of the Hugging Face Hub
    s3://BUCKET/path/or/glob   gs://...   az://...       object stores
    https://HOST/file                                    one file

An https address may hold a secret: a signature in its query, a password before its host. It is kept here, in the
memory of this process, and everything else sees the address without it.
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from tokenmill.errors import SourceError, did_you_mean

STORES = ("s3", "gs", "az")
WEB = ("https", "http")
SCHEMES = ("hf", *STORES, *WEB)
COMMIT = re.compile(r"[0-9a-f]{40}")
HUB_PATTERN = re.compile(r"datasets/([^/@]+/[^/@]+)(?:@([^/]+))?(?:/(.*))?")
SECRET_VARIABLES = ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
SECRETS = re.compile(r"\b(?:hf_[A-Za-z0-9]{16,}|A[KS]IA[A-Z0-9]{16})\b")
URL = re.compile(
    r"(?P<scheme>\b[a-z][a-z0-9+.-]*://)(?P<user>[^/\s@`'\"]*@)?(?P<rest>[^\s?`'\"]*)(?P<query>\?[^\s`'\"]*)?"
)

_full_urls: dict[str, str] = {}  # by the URL that may be shown


class Address(NamedTuple):
    """A place below the root of some store: a repository, a bucket or a host."""

    scheme: str
    root: str  # OWNER/NAME, the bucket, or the host
    path: str  # below the root; may be a glob, except on the web
    revision: str | None = None  # of a repository of the Hub

    def __str__(self) -> str:
        root = f"datasets/{self.root}" if self.scheme == "hf" else self.root
        at = f"@{quote(self.revision, safe='')}" if self.revision else ""
        return f"{self.scheme}://{root}{at}" + (f"/{self.path}" if self.path else "")

    @property
    def is_pinned(self) -> bool:
        """Whether it will always mean the same."""
        return self.scheme != "hf" or bool(self.revision and COMMIT.fullmatch(self.revision))

    def at(self, path: str) -> Address:
        return self._replace(path=path)

    def below(self, name: str) -> Address:
        return self.at(f"{self.path}/{name}")


def is_address(text: str) -> bool:
    return bool(re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", text))


def parsed(text: str) -> Address:
    """Read an address, or say what is wrong with it."""
    scheme, _, rest = text.partition("://")
    scheme = scheme.lower()
    if scheme not in SCHEMES:
        hint = did_you_mean(scheme, list(SCHEMES)) or ""
        raise SourceError(f"tokenmill does not read `{scheme}://`", hint=hint)
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise SourceError(f"the address {redacted(text)!r} has control characters in it")
    if scheme == "hf":
        match = HUB_PATTERN.fullmatch(rest.rstrip("/"))
        if match is None:
            raise SourceError(
                f"`{redacted(text)}` is no address of a data set", hint="hf://datasets/OWNER/NAME[@REVISION]/path"
            )
        return Address("hf", match[1], match[3] or "", unquote(match[2]) if match[2] else None)
    if scheme in WEB:
        address = Address(scheme, *split_root(public_url(text).partition("://")[2]))
        if not address.root:
            raise SourceError(f"`{redacted(text)}` names no host", hint=f"{scheme}://HOST/file")
        return address
    root, path = split_root(rest)
    if "@" in root:
        raise SourceError(
            f"`{redacted(text)}` has a user or a key in it: credentials never go into an address",
            hint="set them as the store's own tools want them, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        )
    if not root:
        raise SourceError(f"`{text}` names no bucket", hint=f"{scheme}://BUCKET/path")
    return Address(scheme, root, path)


def split_root(rest: str) -> tuple[str, str]:
    root, _, path = rest.partition("/")
    return root, path.rstrip("/")


def normalized(text: str) -> str:
    """An address as it may be stored: in one spelling, and without its secrets."""
    return str(parsed(text))


def public_url(url: str) -> str:
    """A URL without user and query; the whole one is remembered for `full_url`."""
    parts = urlsplit(url)
    public = urlunsplit((parts.scheme.lower(), parts.netloc.rpartition("@")[2], parts.path, "", ""))
    if public != url:
        _full_urls[public] = url
    return public


def full_url(public: str) -> str:
    """The URL as the user gave it, in this process."""
    return _full_urls.get(public, public)


def redacted(text: str) -> str:
    """A text that may be printed or stored: no user or query in a URL, no token, no key."""
    for name in SECRET_VARIABLES:
        value = os.environ.get(name, "")
        if len(value) >= 8:
            text = text.replace(value, "***")
    return SECRETS.sub("***", URL.sub(_public_match, text))


def _public_match(match: re.Match[str]) -> str:
    query = match["query"] or ""
    if query and match["scheme"] in ("https://", "http://"):
        query = "?***"
    return match["scheme"] + match["rest"] + query


def glob_prefix(path: str) -> str:
    """The folder below which all matches of a glob lie, without a slash at its end; the path itself if it is none."""
    magic = re.search(r"[*?\[]", path)
    return path[: magic.start()].rpartition("/")[0] if magic else path


def glob_pattern(path: str) -> re.Pattern[str]:
    """What a glob matches: `*` and `?` stay within a folder, `**` is any number of them, `[ab]` one of these."""
    translated = ""
    for part in re.findall(r"\*\*/|\*\*|\*|\?|\[[^\]/]+\]|.", path, flags=re.DOTALL):
        match part:
            case "**/":
                translated += "(?:[^/]+/)*"
            case "**":
                translated += ".*"
            case "*":
                translated += "[^/]*"
            case "?":
                translated += "[^/]"
            case _ if len(part) > 1:
                translated += (
                    ("[^" if part[1] in "!^" else "[") + re.escape(part[1:-1].lstrip("!^")).replace(r"\-", "-") + "]"
                )
            case _:
                translated += re.escape(part)
    return re.compile(translated, flags=re.DOTALL)


def matches(pattern: re.Pattern[str], address: Address, path: str) -> bool:
    """Whether a glob means a path: it matches, or it is no glob after all and a name with such characters in it."""
    return bool(pattern.fullmatch(path)) or path == address.path


def has_magic(path: str) -> bool:
    return glob_prefix(path) != path
