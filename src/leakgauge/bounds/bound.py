"""The most that any attacker could find, beside what an attack found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from leakgauge.bounds.absence import why_none
from leakgauge.bounds.fisher import ErrorBound
from leakgauge.bounds.guarantees import GaussianGuarantee, Guarantee, Level
from leakgauge.bounds.unwrapping import guarantees
from leakgauge.defences import DELTA
from leakgauge.errors import InvalidCase
from leakgauge.files import finite
from leakgauge.protocol.local_update import LocalUpdate

ROUNDS = (1, 10, 100, 1000)
"""The numbers of rounds that a bound is also stated for."""

_NOTHING = 0.9995
"""From here on a bound rules out nothing."""


@dataclass(frozen=True)
class Bound:
    """No attacker identifies an example among ``crowd`` others with probability above ``at_most``.

    None where no bound exists; ``words`` say why. ``guesses`` is how many reconstructions may stand for the example, as
    many as a batch has. ``rounds`` are those that the example may take part in, in each with probability ``sampling``;
    ``over_rounds`` holds the same bound for other numbers of rounds. ``noise_multiplier`` is the noise of a round in
    units of what it hides, ``epsilon`` that of differential privacy at ``DELTA`` over all rounds.
    """

    at_most: float | None
    words: str
    crowd: int
    guesses: int = 1
    rounds: int = 1
    sampling: float = 1.0
    level: Level | None = None
    noise_multiplier: float | None = None
    epsilon: float | None = None
    over_rounds: Mapping[int, float] = field(default_factory=dict)
    nearest_decibels: float | None = None
    """How near any attacker comes on average in one round, as a PSNR, where noise without a clip bounds just that."""
    unbiased_decibels: float | None = None

    @property
    def chance(self) -> float:
        """How probable a blind guess is right."""
        return min(1.0, self.guesses / (self.crowd + 1))

    def with_error(self, error: ErrorBound) -> Bound:
        """The same with what the noise says of the error, which is no bound on picking one out of a crowd."""
        return replace(
            self,
            words=f"{self.words.removesuffix('.')}; but {error.words}.",
            nearest_decibels=error.informed_decibels,
            unbiased_decibels=error.unbiased_decibels,
        )

    def to_dict(self) -> dict[str, Any]:
        values = {name: finite(value) if isinstance(value, float) else value for name, value in asdict(self).items()}
        # Names, since a file has no other keys.
        return values | {"chance": self.chance, "over_rounds": {str(t): p for t, p in self.over_rounds.items()}}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Bound:
        known = {name: values[name] for name in cls.__dataclass_fields__ if name in values}
        return cls(**known | {"over_rounds": {int(t): p for t, p in values.get("over_rounds", {}).items()}})


def read_bounds(description: Mapping[str, Any]) -> dict[str, Bound]:
    """The bounds that the description of an audit holds, by defence; none where it says nothing of its client."""
    return {name: Bound.from_dict(values) for name, values in description.get("bounds", {}).items()}


def bound_of(client: LocalUpdate, *, crowd: int, rounds: int = 1, sampling: float = 1.0, guesses: int = 1) -> Bound:
    """The bound of a client, whatever it is wrapped in.

    >>> from leakgauge.defences import DPSGD
    >>> from leakgauge.protocol import FedSGD
    >>> round(bound_of(DPSGD(noise_multiplier=1.0)(FedSGD()), crowd=99).at_most, 3)
    0.092
    """
    standing = guarantees(client)
    return bound_from(
        [one.guarantee for one in standing.held], why_none(client, standing), crowd, rounds, sampling, guesses
    )


def gaussian_bound(
    noise_multiplier: float, *, crowd: int, rounds: int = 1, sampling: float = 1.0, guesses: int = 1
) -> Bound:
    """The bound of DP-SGD with this noise, or of any clip to C under Gaussian noise of ``noise_multiplier`` * C."""
    if not 0 <= noise_multiplier < math.inf:
        raise InvalidCase(f"The noise multiplier must be at least 0 and finite, got {noise_multiplier}; correct it.")
    held: list[Guarantee] = [GaussianGuarantee(1 / noise_multiplier)] if noise_multiplier else []
    return bound_from(held, "without noise the update is a function of the data", crowd, rounds, sampling, guesses)


def no_bound(reason: str, *, crowd: int, guesses: int = 1) -> Bound:
    """Why there is none."""
    return bound_from([], reason, crowd, 1, 1.0, guesses)


def bound_from(held: list[Guarantee], reason: str, crowd: int, rounds: int, sampling: float, guesses: int) -> Bound:
    """The tightest of the guarantees, all of which hold at once; ``reason`` is why there is none."""
    if crowd < 1 or rounds < 1 or guesses < 1 or not 0 < sampling <= 1:
        raise InvalidCase(
            "A bound needs a crowd, rounds and guesses of at least 1 and a sampling in (0, 1], got "
            f"{crowd}, {rounds}, {guesses} and {sampling}; correct them."
        )
    if not held:
        return Bound(None, f"No bound exists: {reason}.", crowd, guesses, rounds, sampling)
    chance = min(1.0, guesses / (crowd + 1))

    def success(one: Guarantee, times: int) -> float:
        return one.success(chance, rounds=times, sampling=sampling)

    best = min(held, key=lambda one: success(one, rounds))
    at_most = success(best, rounds)
    over = {times: min(success(one, times) for one in held) for times in sorted({*ROUNDS, rounds})}
    return Bound(
        at_most=at_most,
        words=_words(best.level, at_most, over, crowd, guesses, rounds, sampling),
        crowd=crowd,
        guesses=guesses,
        rounds=rounds,
        sampling=sampling,
        level=best.level,
        noise_multiplier=best.noise_multiplier if isinstance(best, GaussianGuarantee) else None,
        epsilon=best.epsilon(DELTA, rounds=rounds, sampling=sampling),
        over_rounds=over,
    )


def _words(
    level: Level, at_most: float, over: Mapping[int, float], crowd: int, guesses: int, rounds: int, sampling: float
) -> str:
    kind = "a private example" if level == "example" else "a private example, or the whole batch,"
    times = "one round" if rounds == 1 else f"{rounds} rounds"
    if at_most >= _NOTHING:
        return f"The noise is too small to rule out that {kind} is picked out of {crowd + 1} in {times}."
    tries = "" if guesses == 1 else f", for {guesses} guesses"
    sampled = "" if sampling == 1 else f" that each take in {_percent(sampling)} of the examples"
    more = [(count, share) for count, share in over.items() if count > rounds]
    # Once it says nothing, more rounds need no words.
    first = next((place for place, (_, share) in enumerate(more) if share >= _NOTHING), len(more))
    later = ", ".join([f"over {count} rounds {_percent(share)}" for count, share in more[: first + 1]])
    return (
        f"No attacker picks {kind} out of {crowd + 1} equally likely ones with a probability above "
        f"{_percent(at_most)} in {times}{sampled} "
        f"({_percent(min(1.0, guesses / (crowd + 1)))} by chance{tries})" + (f"; {later}." if later else ".")
    )


def _percent(share: float) -> str:
    """
    >>> _percent(0.0924), _percent(1.0), _percent(0.99999)
    ('9.24 %', '100 %', 'almost 100 %')
    """
    return "almost 100 %" if _NOTHING <= share < 1 else f"{100 * share:.3g} %"
