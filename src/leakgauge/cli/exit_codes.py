"""What the exit code of a command means; docs/exit-codes.md says it to people."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """One meaning each, so that a pipeline may rely on it: 0 only where the question was answered."""

    ANSWERED = 0
    """The question was answered and, where there is a limit, it is kept."""
    EXCEEDED = 1
    """The answer is bad news: a limit is exceeded, a model is suspicious, more leaks than before."""
    REFUSED = 2
    """The command, a file or the machine does not allow an answer; the sentence says what to change."""
    INCONCLUSIVE = 3
    """It cannot be told whether a limit is kept, or some cases failed."""
    CRASHED = 70
    """A mistake of LeakGauge or of code that it called; a file has the details."""
    STOPPED = 130
    """By Ctrl-C or SIGTERM; what had finished is kept."""
    UNREAD = 141
    """Whoever read the output closed it."""
