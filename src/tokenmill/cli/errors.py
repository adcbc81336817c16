"""How errors are printed: what, then how to mend it, on stderr."""

from __future__ import annotations

import re

import click
from click.exceptions import NoArgsIsHelpError, NoSuchCommand, NoSuchOption

from tokenmill.errors import did_you_mean
from tokenmill.storage.addresses import redacted


def say(message: str, hint: str | None = None) -> None:
    """Print an error to stderr, in the house style, without the secrets that an address may hold."""
    click.echo(click.style("error: ", fg="red", bold=True) + redacted(message), err=True)
    if hint:
        click.echo(click.style("hint: ", fg="cyan") + hint, err=True)


def say_usage(error: click.ClickException) -> None:
    """Print what click found wrong with the command as our own errors are printed."""
    if isinstance(error, NoArgsIsHelpError):
        error.show()  # the help
        return
    say(message_of(error), hint_of(error))


def message_of(error: click.ClickException) -> str:
    """Click's sentence in the house style: no capital, no period, backticks; messages of our own stay as they are."""
    if isinstance(error, NoSuchCommand):
        return f"no such command `{error.command_name}`"
    if isinstance(error, NoSuchOption):
        return f"no such option `{error.option_name}`"
    if is_ours(error):
        return error.message
    text = error.format_message().rstrip(".")
    quoted = re.sub(r"(?<!\w)'([^']+)'", r"`\1`", text)
    return quoted[:1].lower() + quoted[1:]


def is_ours(error: click.ClickException) -> bool:
    return type(error) is click.UsageError and "`" in error.message


def hint_of(error: click.ClickException) -> str | None:
    """The closest of what could have been meant, or where to look."""
    if is_ours(error):
        return None  # the message has it
    context = error.ctx if isinstance(error, click.UsageError) else None
    help_command = f"see `{context.command_path} --help`" if context else None
    if isinstance(error, NoSuchCommand | NoSuchOption):
        close = error.possibilities
        return f"did you mean `{close_name(error, close)}`?" if close else help_command
    if isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        wrong = re.match(r"'([^']*)' is not one of", error.message)
        choices = [str(choice) for choice in error.param.type.choices]
        return did_you_mean(wrong[1], choices) if wrong else help_command
    return help_command


def close_name(error: NoSuchCommand | NoSuchOption, close: list[str]) -> str:
    """The closest one; click sorts options by name, not by closeness."""
    from difflib import get_close_matches

    word = error.command_name if isinstance(error, NoSuchCommand) else error.option_name
    return get_close_matches(word, close, n=1)[0]
