"""What can go wrong for a user. Each message is one sentence that names the cause and the remedy."""

from __future__ import annotations

from collections.abc import Sequence


class LeakGaugeError(Exception):
    """Base of every error a user can cause; the command line prints it and exits with 2."""


class MissingKnowledge(LeakGaugeError):
    """An attack needs a fact that the threat model hides."""


class UnsupportedModel(LeakGaugeError):
    """The model has an operation that this attack or route cannot handle."""


class InvalidUpdate(LeakGaugeError):
    """A recorded or given update does not fit the model, or is not finite."""


class InvalidCase(LeakGaugeError):
    """The data, options or configuration make no sense together."""


class InvalidFile(LeakGaugeError):
    """A file cannot be read, or an output cannot be written."""


class GateFailed(LeakGaugeError):
    """An audit does not pass a gate; ``sentences`` say why, one for each row or defence."""

    def __init__(self, sentences: Sequence[str]) -> None:
        super().__init__(sentences)
        self.sentences = tuple(sentences)

    def __str__(self) -> str:
        return "\n".join(self.sentences)


class LeakFound(GateFailed):
    """More leaked than a limit allows."""


class Inconclusive(GateFailed):
    """Whether a limit is kept cannot be told from what was found."""
