"""How errors are printed."""

from __future__ import annotations

import click

from tokenmill.storage.addresses import redacted


def say(message: str, hint: str | None = None) -> None:
    """Print an error to stderr, in the house style, without the secrets that an address may hold."""
    click.echo(click.style("error: ", fg="red", bold=True) + redacted(message), err=True)
    if hint:
        click.echo(click.style("hint: ", fg="cyan") + hint, err=True)
