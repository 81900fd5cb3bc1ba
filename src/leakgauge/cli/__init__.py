"""The command line: thin, so that everything it does can be done from Python."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

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
from leakgauge.cli.output import refuse, stderr
from leakgauge.errors import LeakGaugeError

_COMPLETION = "_LEAKGAUGE_COMPLETE"
"""Set by what `leakgauge --install-completion` puts into a shell's start-up file."""

app = typer.Typer(
    help="Measure what a federated-learning update gives away, and which defence stops it.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(audit.audit)
app.command()(record.record)
app.command()(recorded.invert)
app.command()(recorded.labels)
app.command()(explain.explain)
app.command()(train.train)
app.command("train-generator")(train.train_generator)
app.command()(tradeoff.tradeoff)
app.command()(sweep.sweep)
app.command()(sweep.status)
app.command()(sweep.results)
app.command()(sweep.compare)
app.command()(check.check)
app.command()(vet.vet)
app.command()(bound.bound)
app.command()(audit.report)
app.command("list")(listing.list_)
app.command()(listing.show)
app.command()(reproduce.reproduce)
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
    """Run the command line; a user's mistake is one sentence on stderr and exit code 2."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    command = typer.main.get_command(app)
    if _COMPLETION in os.environ:  # a shell asks, which click answers itself
        app(prog_name="leakgauge")
    try:
        # Not `app()`, which answers a wrong option with a box of several lines and Ctrl-C with silence.
        with _stopped_kindly(), command.make_context("leakgauge", words) as context:
            command.invoke(context)
    except LeakGaugeError as error:
        refuse(str(error))
    except click.UsageError as error:
        refuse(f"{error.format_message()} See `{error.ctx.command_path if error.ctx else 'leakgauge'} --help`.")
    except click.exceptions.Exit as wanted:
        sys.exit(wanted.exit_code)
    except KeyboardInterrupt:
        stderr().print("[yellow]Stopped before the first result; run the same command to resume.[/]", soft_wrap=True)
        sys.exit(130)
    except BrokenPipeError:  # who read our output, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what Python still flushes on its way out
        sys.exit(128 + signal.SIGPIPE)
    sys.exit(0)
