"""Which attacks and defences of the catalogue apply: each is tried on the update of noise, and asked why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum

from torch import Generator, Tensor

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Answered, Attack, LabelAttack, SteppedAttack
from leakgauge.attacks.budget import Budget
from leakgauge.attacks.labels import ZLG, ClassGradients
from leakgauge.attacks.malicious import IdentityConvolutions
from leakgauge.attacks.malicious.base import MaliciousAttack
from leakgauge.attacks.matching.differentiation import DoubleBackward
from leakgauge.attacks.matching.differentiation.route import Choice
from leakgauge.attacks.recipes.best import Best
from leakgauge.attacks.span.matching import SpanMatching
from leakgauge.catalogue import ATTACKS, DEFENCES
from leakgauge.clocks import Seconds
from leakgauge.config import build_attack, build_defence
from leakgauge.defences import DPSGD, Soteria
from leakgauge.errors import LeakGaugeError, MissingKnowledge
from leakgauge.factories import cause
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.learner import Learner, probe_of
from leakgauge.protocol.local_update import Defence
from leakgauge.randomness import seeded
from leakgauge.risk.client import NoiseClient
from leakgauge.risk.cost import Route
from leakgauge.risk.settled import settle
from leakgauge.types import Batch, ModelState, Outcome, Reconstruction

_ANY = Choice(DoubleBackward())


class PartKind(Enum):
    """What an attack restores, and how."""

    CLOSED_FORM = "closed form"
    MATCHING = "gradient matching"
    LABELS = "labels"
    MALICIOUS = "malicious server"
    DEFENCE = "defence"


@dataclass(frozen=True)
class Applicability:
    """Whether a part of the catalogue applies to the model; None where that was not tried. ``why`` says why (not)."""

    name: str
    kind: PartKind
    applies: bool | None
    why: str = ""


@dataclass(frozen=True)
class Allowance:
    """CPU seconds for trials; what it does not cover is not tried, and says so."""

    seconds: float
    since: Seconds = field(default_factory=Seconds.now)

    def covers(self, seconds: float) -> bool:
        """Whether so much more can be spent; of what is left, not that it is enough for a trial of unknown length."""
        return (Seconds.now() - self.since).cpu + seconds < self.seconds


def try_attacks(
    client: NoiseClient, route: Route, allowance: Allowance, progress: Progress = silent
) -> tuple[Applicability, ...]:
    """Every attack of the catalogue, in its order; those that take long are tried last."""
    attacks = {name: build_attack(name, Budget(steps=1)) for name in ATTACKS}
    found = {}
    for number, name in enumerate(sorted(attacks, key=lambda name: _length(attacks[name])), 1):
        attack = attacks[name]
        if not allowance.covers(_length(attack) * client.training_step):
            why = f"that would take more than the {allowance.seconds:g} s of this check; an audit tries it."
            found[name] = Applicability(name, kind_of(attack), None, why)
        else:
            found[name] = _tried(name, kind_of(attack), lambda a=attack: _attack(a, client, route))  # type: ignore[misc]
        progress(Tick(number, number / len(attacks)))
    return tuple(found[name] for name in attacks)


def _length(attack: Attack) -> int:
    """About how many training steps a trial takes, at the least."""
    if isinstance(attack, ClassGradients | IdentityConvolutions | SpanMatching | ZLG):
        return 50  # one for every class or pixel, or nearly, or a decomposition of every layer
    searches = kind_of(attack) is PartKind.MATCHING and not isinstance(attack, SteppedAttack)  # and so makes a step
    return 10 if isinstance(attack, MaliciousAttack) or searches else 1


def try_closed_forms(client: NoiseClient) -> tuple[str, ...]:
    """The attacks that read an example off its update without any search."""
    attacks = {name: build_attack(name, Budget(steps=1)) for name in ATTACKS}
    closed = {name: attack for name, attack in attacks.items() if kind_of(attack) is PartKind.CLOSED_FORM}
    tried = (_tried(name, PartKind.CLOSED_FORM, lambda a=a: _run(a, client)) for name, a in closed.items())  # type: ignore[misc]
    return tuple(one.name for one in tried if one.applies)


def try_defences(client: NoiseClient) -> tuple[Applicability, ...]:
    """Every defence of the catalogue with its default settings, in its order."""
    return tuple(
        _tried(name, PartKind.DEFENCE, lambda name=name: _defend(build_defence(name), client))  # type: ignore[misc]
        for name in DEFENCES
    )


def kind_of(attack: Attack) -> PartKind:
    if isinstance(attack, MaliciousAttack):
        return PartKind.MALICIOUS
    if isinstance(attack, LabelAttack):
        return PartKind.LABELS
    matches = isinstance(attack, SteppedAttack) or settle(attack, _ANY) is not attack
    return PartKind.MATCHING if matches else PartKind.CLOSED_FORM


def _tried(name: str, kind: PartKind, trial: Callable[[], tuple[bool, str]]) -> Applicability:
    try:
        applies, why = trial()
    except LeakGaugeError as refusal:
        applies, why = False, str(refusal)
    except Exception as error:  # a user's model may fail in any way under what a part does with it
        applies, why = False, f"it fails on this model ({cause(error).rstrip('.')})."
    return Applicability(name, kind, applies, why)


def _attack(attack: Attack, client: NoiseClient, route: Route) -> tuple[bool, str]:
    if kind_of(attack) is PartKind.MATCHING and route.choice is None:
        return False, route.refusal or ""
    if isinstance(attack, Best) and route.recipe is not None:
        return True, ""  # its recipe is the one whose cost was measured
    if route.choice is not None:
        attack = settle(attack, route.choice, route.recipe)
    if isinstance(attack, SteppedAttack):
        begun = attack.search([client.observe("informed")], generator=_generator())
        return _answer(begun.found[0]) if isinstance(begun, Answered) else (True, "")
    return _run(attack, client)


def _run(attack: Attack, client: NoiseClient) -> tuple[bool, str]:
    if not isinstance(attack, LabelAttack):
        return _answer(_call(attack, client, "informed"))
    try:
        return _answer(_call(attack, client, "honest_but_curious"))
    except MissingKnowledge:
        answer = _answer(_call(attack, client, "auxiliary"))
        return answer[0], answer[1] or "with labelled examples of the same kind, threat model auxiliary."


def _call(attack: Attack, client: NoiseClient, threat_model: str) -> Reconstruction:
    federation = None
    if isinstance(attack, MaliciousAttack):
        federation = attack.tamper(client.federation, client.space)
        tampering = federation.learner.tampering
        if tampering is not None and tampering.refusal is not None:
            return not_applicable(tampering.refusal)
    seen = client.observe(threat_model, federation=federation, examples=len(client.batch))
    return attack(seen, generator=_generator())


def _answer(found: Reconstruction) -> tuple[bool, str]:
    if found.outcome not in (Outcome.NOT_APPLICABLE, Outcome.MISSING_KNOWLEDGE):
        return True, ""
    return False, str(found.facts.get("reason", found.outcome.value))


def _defend(defence: Defence, client: NoiseClient) -> tuple[bool, str]:
    learner, state = client.learner, client.state
    if isinstance(defence, Soteria):
        # A derivative for each feature is too long for a trial; whether there is a layer to prune is what can fail.
        (tensor,) = defence.distorted(learner, state, probe_of(client.batch.inputs))
        return True, f"it prunes {tensor}."
    known = dict(client.sent.update.params)

    def rule(learner: Learner, state: ModelState, batch: Batch) -> dict[str, Tensor]:
        # The gradient of the batch itself is known; that of mixtures is not.
        if batch.inputs is client.batch.inputs:
            return known
        return replace(learner, gradient_rule=client.learner.gradient_rule).gradient(
            state, batch[slice(client.computed)]
        )

    batch = client.some if isinstance(defence, DPSGD) else client.batch
    sent = defence(client.federation.local_update).send(
        replace(learner, gradient_rule=rule), state, batch, generator=_generator()
    )
    del sent
    return True, ""


def _generator() -> Generator:
    return seeded(0, "trial")
