"""The command line: the only place that imports click and rich, and the only one that prints."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from typing import NoReturn

import click

from tokenmill import __version__
from tokenmill.cli.completion import completion
from tokenmill.cli.convert import convert, merge
from tokenmill.cli.datasets import datasets
from tokenmill.cli.doctor import doctor
from tokenmill.cli.download import download
from tokenmill.cli.errors import say, say_usage
from tokenmill.cli.inspect import inspect
from tokenmill.cli.lists import formats, tokenizers
from tokenmill.cli.plan import plan
from tokenmill.cli.prepare import prepare
from tokenmill.cli.push import push
from tokenmill.cli.report import report
from tokenmill.cli.stats import stats
from tokenmill.cli.status import status
from tokenmill.cli.verify import verify
from tokenmill.cli.view import view
from tokenmill.errors import TokenmillError


class InOrder(click.Group):
    """Lists commands in the order in which they are needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="tokenmill")
def cli() -> None:
    """Turn raw text into training shards for language models.

    \b
    Try it on the sample that ships with tokenmill:
        tokenmill prepare sample -o out
        tokenmill inspect out --doc 0
    """


COMMANDS = (
    prepare,
    plan,
    status,
    verify,
    inspect,
    stats,
    report,
    view,
    convert,
    merge,
    push,
    download,
    datasets,
    formats,
    tokenizers,
    doctor,
    completion,
)
for command in COMMANDS:
    cli.add_command(command)


def main() -> None:
    """Run the command line and exit.

    0 done; 1 the work or the check failed; 2 usage, recipe, no input; 3 incomplete, safe to run again; 4 done, with
    documents left out; 70 a bug; 130 interrupted, 143 terminated.
    """
    run_command(cli)


def run_command(command: click.Command) -> NoReturn:
    """Run a command line of ours and exit; whatever goes wrong is said in the house style."""
    # Of numpy's linear algebra, which nobody here uses: it would spin on all cores while it is loaded.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(exit_code(command))


def exit_code(command: click.Command = cli) -> int:
    try:
        result = command(standalone_mode=False)
        return result if isinstance(result, int) else 0
    except click.ClickException as error:
        say_usage(error)
        return error.exit_code
    except click.Abort:  # click's word for an interrupt; `prepare` has its own
        say(
            "interrupted",
            hint="run the same command again; `convert`, `merge`, `download` and `push` go on where they were",
        )
        return 130
    except TokenmillError as error:
        say(error.message, error.hint)
        return error.exit_code
    except OSError as error:
        place = f": `{error.filename}`" if error.filename else ""
        say(f"{(error.strerror or str(error)).lower()}{place}")
        return 3 if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG) else 1
    except Exception:
        traceback.print_exc()
        say("this is a bug in tokenmill", hint="please report it with the lines above and the command you ran")
        return 70
