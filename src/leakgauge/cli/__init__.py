"""The command line: thin, so that everything it does can be done from Python."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache

import click
import typer

from leakgauge.cli import (
    audit,
    bound,
    check,
    explain,
    instahide,
    listing,
    record,
    recorded,
    reproduce,
    sweep,
    tradeoff,
    train,
    vet,
)
from leakgauge.cli.crashes import crash
from leakgauge.cli.exit_codes import ExitCode
from leakgauge.cli.output import loaded, refuse, stderr
from leakgauge.errors import LeakGaugeError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG)
_COMPLETION = "_LEAKGAUGE_COMPLETE"
"""Set by what `leakgauge --install-completion` puts into a shell's start-up file."""

app = typer.Typer(
    help="Measure what a federated-learning update gives away, and which defence stops it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(loaded(audit.audit))
app.command()(loaded(record.record))
app.command()(loaded(recorded.invert))
app.command()(loaded(recorded.labels))
app.command()(loaded(explain.explain))
app.command()(loaded(train.train))
app.command("train-generator")(loaded(train.train_generator))
app.command()(loaded(tradeoff.tradeoff))
app.command()(loaded(sweep.sweep))
app.command()(loaded(sweep.status))
app.command()(loaded(sweep.results))
app.command()(loaded(sweep.compare))
app.command()(loaded(check.check))
app.command()(loaded(vet.vet))
app.command()(loaded(bound.bound))
app.command()(loaded(audit.report))
app.command("list")(loaded(listing.list_))
app.command()(loaded(listing.show))
app.command()(loaded(reproduce.reproduce))
app.add_typer(instahide.group, name="instahide")


@contextmanager
def _stopped_kindly() -> Iterator[None]:
    """What a scheduler or `kill` sends counts as Ctrl-C: what is done is kept, and workers end."""
    if threading.current_thread() is not threading.main_thread():  # who alone hears signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line; how it ended is an `ExitCode`, and in words one sentence on stderr."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    if sys.stdout is None:  # closed by who called
        refuse("There is no standard output to write an answer to; send it to a file, or to /dev/null.")
    if _COMPLETION in os.environ:  # a shell asks, which click answers itself
        app(prog_name="leakgauge")
    if any("\0" in word for word in words):
        refuse("A word of the command holds a NUL, which no name has; correct it.")
    try:
        _run(words)
    except LeakGaugeError as error:
        refuse(str(error))
    except click.UsageError as error:
        refuse(f"{error.format_message()} See `{error.ctx.command_path if error.ctx else 'leakgauge'} --help`.")
    except click.exceptions.Exit as wanted:
        sys.exit(wanted.exit_code)
    except (KeyboardInterrupt, click.Abort):
        stderr().print("[yellow]Stopped before the first result; run the same command to resume.[/]", soft_wrap=True)
        sys.exit(ExitCode.STOPPED)
    except BrokenPipeError:  # who read our output, such as `head`, has seen enough
        _drop_output()
        sys.exit(ExitCode.UNREAD)
    except BaseException as error:  # whatever own code raises; Python would end with 1, an answer
        if isinstance(error.__context__, BrokenPipeError):  # rich turns it into an exit of its own
            _drop_output()
            sys.exit(ExitCode.UNREAD)
        if isinstance(error, OSError):
            _refuse_machine(error)
        crash(error, words)
    sys.exit(ExitCode.ANSWERED)


@cache
def _command() -> click.Command:
    """Made once: every option of every command is read off a signature, a tenth of a second in all."""
    return typer.main.get_command(app)


def _run(words: list[str]) -> None:
    """Not `app()`, which answers a wrong option with a box of several lines and Ctrl-C with silence."""
    command = _command()
    with _stopped_kindly(), command.make_context("leakgauge", words) as context:
        command.invoke(context)
    sys.stdout.flush()


def _refuse_machine(error: OSError) -> None:
    """What the machine does not allow, where it says what of: no room, or a file by its name."""
    if error.errno in _NO_ROOM:
        _drop_output()
        refuse(f"The answer cannot be written ({error.strerror}); make room for it, or write it elsewhere.")
    if error.filename is not None:
        refuse(f"Cannot use {str(error.filename)[:200]}: {error.strerror}; check the path.")


def _drop_output() -> None:
    """What Python still flushes on its way out has nowhere to go."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
