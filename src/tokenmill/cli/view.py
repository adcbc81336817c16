"""`tokenmill view`."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import click

from tokenmill.cli.options import Folder


@click.command(short_help="Browse shards in a page of your own machine.")
@click.argument("out", type=Folder())
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to serve on.  [default: any free one]")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option(
    "--compare",
    "others",
    multiple=True,
    metavar="TOKENIZER",
    help="Offer this tokenizer for comparison, too: a name or a file, as for `prepare`.",
)
@click.option("--tokenizer", help="The tokenizer, where nothing tells it: a name or a file, as for `prepare`.")
@click.option("--format", "shard_format", metavar="NAME", help="The format, where names and first bytes mislead.")
@click.option("--dtype", metavar="TYPE", help="The type of the ids, where no header tells it: uint16, uint32, ...")
def view(
    out: Path,
    port: int,
    no_browser: bool,
    others: tuple[str, ...],
    tokenizer: str | None,
    shard_format: str | None,
    dtype: str | None,
) -> None:
    """Browse shards in a web page of your own machine: documents, their tokens, search, lengths.

    OUT is an output of tokenmill, or a folder or file of shards of any format. Nobody else can open the page: it is
    served to this machine only, at an address with a random token. Ctrl+C ends it.

    \b
    Examples:
        tokenmill view out
        tokenmill view out --port 8765 --no-browser
        tokenmill view out --compare llama3/tokenizer.json
    """
    from tokenmill.reading import open_any
    from tokenmill.tokenizers import Tokenizer, tokenizer_names
    from tokenmill.viewer.questions import Questions
    from tokenmill.viewer.server import ViewServer

    for name in others:
        Tokenizer(name)  # a name that is wrong is better told here than in the page
    shards = open_any(out, tokenizer, dtype, format=shard_format)
    offered = (*others, *(name for name in tokenizer_names() if name not in others))
    try:
        opened = ViewServer(Questions(shards, offered), port)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise click.BadParameter(f"{port} is in use; leave it out for any free one", param_hint="--port") from None
    with opened as server:
        click.echo(f"Viewing `{out}` at {server.url}\nCtrl+C ends it.")
        if not no_browser and has_screen():
            click.launch(server.url)
        try:
            server.serve_forever(poll_interval=0.2)
        except KeyboardInterrupt:
            click.echo("", err=True)


def has_screen() -> bool:
    """Whether a browser would have somewhere to appear."""
    return sys.platform in ("darwin", "win32") or any(name in os.environ for name in ("DISPLAY", "WAYLAND_DISPLAY"))
