"""What is left of a run that ended in a way nobody foresaw: one sentence, and a file with the rest."""

from __future__ import annotations

import os
import platform
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from rich.markup import escape

from leakgauge.cli.exit_codes import ExitCode
from leakgauge.cli.output import stderr
from leakgauge.version import VERSION


def crash(error: BaseException, words: Sequence[str]) -> NoReturn:
    """Say what happened, keep the traceback in a file, or on stderr where there is no room for one, and exit."""
    details = _details(error, words)
    log = _keep(details)
    where = "below" if log is None else f"in {log}"
    stderr().print(f"[bold red]leakgauge:[/] {escape(_sentence(error, where))}", soft_wrap=True)
    if log is None:
        stderr().print(escape(details), soft_wrap=True)
    sys.exit(ExitCode.CRASHED)


def _sentence(error: BaseException, where: str) -> str:
    said = " ".join(str(error).split())[:200].rstrip(".")
    if isinstance(error, MemoryError) or "can't allocate memory" in said:
        return f"Memory ran out; lower the batch size, the restarts or --jobs. Details are {where}."
    if not isinstance(error, Exception):
        return (
            f"Code that the command called ended the program ({type(error).__name__}: {said}), so that there is no "
            f"answer; let it raise an error instead. Details are {where}."
        )
    return f"This is a mistake of LeakGauge ({type(error).__name__}: {said}); please report it. Details are {where}."


def _details(error: BaseException, words: Sequence[str]) -> str:
    """What a report needs; a traceback has lines of code and no values."""
    lines = (
        f"leakgauge {VERSION}, Python {platform.python_version()}, {platform.platform()}",
        f"command: leakgauge {' '.join(map(ascii, words))}",
        "".join(traceback.format_exception(error)),
    )
    return "\n".join(lines)


def _keep(details: str) -> Path | None:
    """In the folder for temporary files, which is there wherever a command is run; readable by its owner alone."""
    try:
        handle, name = tempfile.mkstemp(prefix="leakgauge-crash-", suffix=".log")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(details)
    except OSError:
        return None
    return Path(name)
