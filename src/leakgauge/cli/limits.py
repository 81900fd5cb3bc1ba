"""``--fail-above``: what may leak at most, checked before anything runs."""

from __future__ import annotations

from typing import Any

from leakgauge.errors import InvalidCase


def limits_of(texts: list[str] | None) -> dict[str, float]:
    from leakgauge.audit.result import check_limit

    limits = {}
    for text in texts or ():
        name, _, value = text.partition("=")
        try:
            limits[name.strip()] = float(value)
        except ValueError as error:
            raise InvalidCase(f"--fail-above takes metric=number, such as identification=0.5, got {text!r}.") from error
        check_limit(name.strip(), limits[name.strip()])
    return limits


def check_limits(limits: dict[str, float], prepared: Any) -> None:
    """Refuse, before any attack runs, a limit on what this run cannot measure."""
    from leakgauge.audit.result import labels_given
    from leakgauge.metrics import Kind

    for name in limits:
        if name not in prepared.metrics:
            known = ", ".join(prepared.metrics)
            raise InvalidCase(f"The limit on {name!r} cannot be measured here; choose from {known}.")
        metric = prepared.metrics[name]
        if metric.lacks:
            raise InvalidCase(f"The limit on {name!r} needs {metric.lacks}.")
        if metric.serves is Kind.LABELS and all(labels_given(case.ledger) for case in prepared.cases):
            raise InvalidCase(
                f"The limit on {name!r} needs labels that the attacker is not given; "
                "choose such a threat model, or add an attack on labels."
            )
        if any(case.truth is None for case in prepared.cases):
            raise InvalidCase(f"The limit on {name!r} needs the private images to compare with; give --truth.")
