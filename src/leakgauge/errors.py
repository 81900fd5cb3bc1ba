"""What can go wrong for a user. Each message is one sentence that names the cause and the remedy."""

from __future__ import annotations


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
