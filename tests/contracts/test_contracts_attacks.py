"""What holds for every attack of the catalogue, and for every one that will be added to it."""

from __future__ import annotations

import pickle
import sys
from dataclasses import FrozenInstanceError, dataclass, fields, replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

import leakgauge.attacks.adaptive
import leakgauge.attacks.analytic
import leakgauge.attacks.feature_maps
import leakgauge.attacks.federated
import leakgauge.attacks.labels
import leakgauge.attacks.malicious
import leakgauge.attacks.matching
import leakgauge.attacks.recipes
import leakgauge.attacks.span
import leakgauge.attacks.text
from docs_support import blocks
from leakgauge.attacks.analytic import LinearBatches
from leakgauge.attacks.budget import Budget, with_budget
from leakgauge.attacks.matching import GradientMatching
from leakgauge.catalogue import ATTACKS
from leakgauge.defences import GaussianNoise, NoDefence, Pruning
from leakgauge.errors import InvalidUpdate, MissingKnowledge
from leakgauge.models import MLP, Compact, ConvNet, build
from leakgauge.progress import Tick
from leakgauge.protocol import FedAvg, UpdateObservation
from leakgauge.randomness import seeded
from leakgauge.types import Outcome, Reconstruction

SHAPE = (3, 9, 9)
NAMESPACE = {
    **vars(leakgauge.attacks.adaptive),
    **vars(leakgauge.attacks.matching),
    **vars(leakgauge.attacks.recipes),
    **vars(leakgauge.attacks.span),
    **vars(leakgauge.attacks.feature_maps),
    **vars(leakgauge.attacks.text),
    **vars(leakgauge.attacks.analytic),
    **vars(leakgauge.attacks.labels),
    **vars(leakgauge.attacks.malicious),
    **vars(leakgauge.attacks.federated),
}
CLIENTS = {
    "an MLP and one image": (MLP(hidden=(8,)), 1, "eval"),
    "a smooth model and two images": (Compact(width=3), 2, "eval"),
    "batch norm in train mode": (ConvNet(width=2), 2, "train"),
}


def short(attack):
    """The attack with three steps and two restarts, if it takes any."""
    attack = with_budget(attack, Budget(steps=3))
    return replace(attack, restarts=2) if getattr(attack, "restarts", 1) > 2 else attack


def attack_of_the_page() -> type:
    """What docs/add-an-attack.md tells to write, in a module of its own, as a worker imports it."""
    name = "attack_of_the_page"
    if name not in sys.modules:
        block = blocks(Path(__file__).parents[2] / "docs" / "add-an-attack.md", "python")[0]
        sys.modules[name] = ModuleType(name)
        exec(compile(block.code, "add-an-attack.md", "exec"), vars(sys.modules[name]))
    return sys.modules[name].MeanGrey


ATTACKED_BY = {**ATTACKS, "of_the_page": attack_of_the_page()}
NAMESPACE["MeanGrey"] = attack_of_the_page()


def in_turn(*others):
    """Every attack with every client, each time with another of the ``others``: an attack meets all of these too."""
    return [
        pytest.param(attack, client, *others[(row + column) % len(others)])
        for row, attack in enumerate(ATTACKED_BY)
        for column, client in enumerate(CLIENTS)
    ]


def one_client_each():
    """Every attack with one of the clients, in turn."""
    return [(attack, list(CLIENTS)[row % len(CLIENTS)]) for row, attack in enumerate(ATTACKED_BY)]


each_with_one_client = pytest.mark.parametrize(("attack", "client"), one_client_each(), indirect=True)


@pytest.fixture(params=ATTACKED_BY)
def attack(request):
    return short(ATTACKED_BY[request.param]())


@pytest.fixture(params=CLIENTS)
def client(request, examples):
    factory, count, mode = CLIENTS[request.param]
    return build(factory, SHAPE, 5, seed=0), examples(count, SHAPE), mode


@pytest.fixture(scope="module")
def attacked(attacked):
    """As everywhere, with one skeleton for all clients of a model: it holds no values, and is read only once."""
    skeletons = {}

    def observe(module, batch, **options):
        seen = attacked(module, batch, **options)
        key = (repr(module), batch.inputs.dtype, seen.learner.mode)
        skeleton = skeletons.setdefault(key, seen.learner.module)
        return replace(seen, learner=replace(seen.learner, module=skeleton))

    return observe


@dataclass
class Run:
    """An attack on the update of one client, run once for all that is asked of it."""

    seen: UpdateObservation
    found: Reconstruction
    ticks: list[Tick]


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], Run]:
    return {}


@pytest.fixture
def run(attack, client, attacked, runs) -> Run:
    module, batch, mode = client
    key = (repr(attack), repr(module))
    if key not in runs:
        seen, ticks = attacked(module, batch, mode=mode), []
        runs[key] = Run(seen, attack(seen, generator=seeded(0), progress=ticks.append), ticks)
    return runs[key]


def same(left: Reconstruction, right: Reconstruction) -> bool:
    def equal(one, two) -> bool:
        return one is two if one is None or two is None else torch.equal(one, two)

    tensors = ("inputs", "labels", "loss_trace")
    return (
        all(equal(getattr(left, name), getattr(right, name)) for name in tensors)
        and left.outcome is right.outcome
        and left.facts == right.facts
    )


@each_with_one_client
def test_the_same_attack_on_the_same_update_gives_the_same_result_in_a_worker_process_too(attack, run):
    # A worker receives both pickled.
    again, seen = pickle.loads(pickle.dumps((attack, run.seen)))  # noqa: S301
    assert again == attack
    assert same(again(seen, generator=seeded(0)), run.found)


@pytest.mark.parametrize(
    ("attack", "client", "threat_model", "defence", "dtype"),
    in_turn(
        ("honest_but_curious", NoDefence(), torch.float32),
        ("strongest", Pruning(0.5), torch.float64),
        ("unaware", GaussianNoise(0.01), torch.float32),
    ),
    indirect=["attack", "client"],
)
def test_what_comes_back_is_pixels_or_their_absence_is_explained_and_all_that_was_seen_stays_as_it_was(
    attack, client, threat_model, defence, dtype, attacked, bits
):
    module, batch, mode = client
    batch = replace(batch, inputs=batch.inputs.to(dtype))
    module = module.to(dtype).train()
    seen = attacked(module, batch, threat_model=threat_model, defence=defence, mode=mode)
    before, stream = bits(module, batch, seen, seen.learner.module), torch.get_rng_state()
    found = attack(seen, generator=seeded(0))
    assert bits(module, batch, seen, seen.learner.module) == before
    assert torch.equal(torch.get_rng_state(), stream)
    assert isinstance(found.outcome, Outcome)
    if found.inputs is None:
        # No image: not applicable with its reason, diverged, or an attack on labels alone.
        assert found.outcome in (Outcome.NOT_APPLICABLE, Outcome.NON_FINITE) or found.labels is not None
        assert found.outcome is not Outcome.NOT_APPLICABLE or found.facts["reason"]
    else:
        assert found.inputs.shape == batch.inputs.shape
        assert found.inputs.dtype == dtype
        assert 0 <= float(found.inputs.min()) <= float(found.inputs.max()) <= 1
        assert not found.inputs.requires_grad
    if found.labels is not None:
        assert found.labels.shape[:1] == batch.labels.shape[:1]
        assert 0 <= int(found.labels.min()) <= int(found.labels.max()) < 5


@pytest.mark.parametrize("field", ["num_examples", "local_update"])
def test_a_hidden_fact_is_either_not_needed_or_missed_by_name(attack, field, run):
    blind = replace(run.seen, **{field: None})
    try:
        found = attack(blind, generator=seeded(0))
    except MissingKnowledge as missing:
        message = str(missing)
    else:
        message = ""
        assert same(found, run.found)
    assert not message or (f"`{field}`" in message and "\n" not in message)


def test_under_update_only_the_missing_batch_size_is_named(attack, client, attacked):
    module, batch, mode = client
    seen = attacked(module, batch, threat_model="update_only", mode=mode)
    if isinstance(attack, LinearBatches):  # which counts the examples by the rank of the update
        found = attack(seen, generator=seeded(0)).inputs
        assert found is None or len(found) == len(batch)
        return
    with pytest.raises(MissingKnowledge, match=rf"^{type(attack).__name__} needs `num_examples`"):
        attack(seen, generator=seeded(0))


def test_a_matching_attack_names_each_fact_it_cannot_do_without(client, attacked):
    module, batch, mode = client
    seen = attacked(module, batch, mode=mode)
    bare = short(GradientMatching(labels=None))
    for field in ("num_examples", "local_update", "labels"):
        with pytest.raises(MissingKnowledge, match=f"`{field}`"):
            bare(replace(seen, **{field: None}), generator=seeded(0))


def spoilt(seen: UpdateObservation, name: str, bad: float) -> UpdateObservation:
    params = {key: tensor.clone() for key, tensor in seen.update.params.items()}
    params[name].view(-1)[0] = bad
    return replace(seen, update=replace(seen.update, params=params))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_an_update_that_diverged_is_refused_rather_than_explained(attack, client, bad, attacked):
    module, batch, mode = client
    seen = attacked(module, batch, threat_model="honest_but_curious", mode=mode)
    for name in ("head.bias", "head.weight", next(iter(seen.update.params))):
        with pytest.raises(InvalidUpdate, match="NaN or infinite"):
            attack(spoilt(seen, name, bad), generator=seeded(0))


@each_with_one_client
def test_several_local_steps_are_no_obstacle(attack, client, attacked):
    module, batch, mode = client
    seen = attacked(module, batch, local_update=FedAvg(2, 1, 0.01), mode=mode)
    found = attack(seen, generator=seeded(0))
    assert found.outcome is not Outcome.NON_FINITE


def test_progress_is_reported_from_the_first_step_to_the_end(run):
    assert len(run.ticks) == (0 if run.found.loss_trace is None else len(run.found.loss_trace))
    assert all(0 < tick.fraction <= 1 for tick in run.ticks)


def test_an_attack_is_its_own_configuration(attack):
    again = eval(repr(attack), NAMESPACE)  # noqa: S307
    assert again == attack
    assert hash(again) == hash(attack)
    with pytest.raises(FrozenInstanceError):
        setattr(attack, fields(attack)[0].name if fields(attack) else "strength", 1)
