"""`tokenmill push`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tokenmill.cli.words import plural, size

if TYPE_CHECKING:
    from tokenmill.push import Plan, Pushed


@click.command(short_help="An output to the Hugging Face Hub, with a card.")
@click.argument("out", type=click.Path(path_type=Path))
@click.argument("target", metavar="hf://datasets/OWNER/NAME[/PATH]")
@click.option("--private", is_flag=True, help="Make the repository private, if it is not there yet.")
@click.option("--message", metavar="TEXT", help="What the commits are called.")
@click.option("--dry-run", is_flag=True, help="Show the files, their sizes and the card, and do nothing.")
def push(out: Path, target: str, private: bool, message: str | None, dry_run: bool) -> None:
    """Upload a finished output to the Hugging Face Hub, with a dataset card.

    The repository is made if it is not there. The manifest comes last, and what is there already is not uploaded
    again: a push that was stopped goes on when the same command is given again. The token is that of `hf auth login`,
    or HF_TOKEN.

    \b
    Examples:
        tokenmill push out hf://datasets/me/fineweb-gpt2 --private
        tokenmill push out hf://datasets/me/corpora/fineweb --dry-run
    """
    from tokenmill.push import push as run
    from tokenmill.push import push_plan

    plan = push_plan(out, target)
    if dry_run:
        show_plan(plan)
        return
    if plan.local_paths:
        click.echo("note: manifest.json goes up as it is, with the paths of the inputs on this machine", err=True)
    watched = bool(sys.stderr and sys.stderr.isatty())  # then the Hub's client shows bars of its own
    if not watched:
        from huggingface_hub.utils.tqdm import disable_progress_bars

        disable_progress_bars()

    def show(n_done: int, n_total: int) -> None:
        if not watched and n_total:
            click.echo(f"uploaded {size(n_done)} of {size(n_total)}", err=True)

    report(run(plan, private=private, message=message, on_files=show), plan, target)


def show_plan(plan: Plan) -> None:
    for upload in plan.files:
        click.echo(f"{size(upload.n_bytes):>8}  {upload.path}")
    n_bytes = sum(upload.n_bytes for upload in plan.files)
    click.echo(f"{size(n_bytes):>8}  {plural(len(plan.files), 'file')}")
    if plan.local_paths:
        click.echo("note: manifest.json goes up as it is, with the paths of the inputs on this machine", err=True)
    click.echo(f"\n{plan.card}", nl=False)


def report(pushed: Pushed, plan: Plan, target: str) -> None:
    totals, repo = plan.manifest.totals, plan.target.repo
    done = "Pushed" if pushed.uploaded else "Already there"
    click.echo(f"{done}: {plural(totals.n_tokens, 'token')} of {plural(totals.n_documents, 'document')} in {target}")
    n_bytes = sum(upload.n_bytes for upload in pushed.uploaded)
    there = f"; {plural(pushed.n_there, 'file')} there already" if pushed.n_there else ""
    click.echo(f"  uploaded   {plural(len(pushed.uploaded), 'file')}, {size(n_bytes)}{there}")
    if pushed.kept_card:
        click.echo("  card       kept as it is there: somebody else wrote it")
    click.echo(f"  at         {pushed.url}")
    click.echo(f"Get it with `hf download {repo} --repo-type dataset --local-dir FOLDER`.")
