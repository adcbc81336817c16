"""How errors are printed."""

from __future__ import annotations

import click


def say(message: str, hint: str | None = None) -> None:
    """Print an error to stderr, in the house style."""
    click.echo(click.style("error: ", fg="red", bold=True) + message, err=True)
    if hint:
        click.echo(click.style("hint: ", fg="cyan") + hint, err=True)
