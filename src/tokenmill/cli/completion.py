"""`tokenmill completion`: the script that a shell asks us through."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TOKENMILL_COMPLETE"


@click.command(short_help="The line that makes the Tab key complete commands.")
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes the Tab key complete commands, flags, formats, tokenizers and corpora.

    \b
    Examples:
        tokenmill completion bash >> ~/.bashrc
        tokenmill completion zsh >> ~/.zshrc
        tokenmill completion fish > ~/.config/fish/completions/tokenmill.fish
    """
    from tokenmill.cli import cli

    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    click.echo(kind(cli, {}, "tokenmill", VARIABLE).source())
