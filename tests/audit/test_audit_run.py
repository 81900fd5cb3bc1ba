from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest
import torch
from audit_support import *  # noqa: F403
from audit_support import MakeRecord
from rich.console import Console
from torch import Generator, Tensor, nn
from torch.nn.functional import cross_entropy, multi_margin_loss

from leakgauge import THREAT_MODELS, FedSGD, UpdateObservation, Verdict
from leakgauge.attacks.analytic import LinearLayer
from leakgauge.audit import case as case_module
from leakgauge.audit import run as run_module
from leakgauge.audit.case import Case
from leakgauge.audit.execute import PreparedAudit, execute
from leakgauge.audit.executors import InProcess
from leakgauge.audit.grid import Round, grid
from leakgauge.audit.record import Pictures, Record
from leakgauge.audit.run import recall, run_case
from leakgauge.audit.sources import RecordedUpdate
from leakgauge.audit.store import FolderStore, MemoryStore
from leakgauge.audit.verdict import Reason
from leakgauge.catalogue import standard_metrics
from leakgauge.config import build_defence
from leakgauge.errors import InvalidCase, MissingKnowledge, UnsupportedModel
from leakgauge.fingerprint import digest
from leakgauge.metrics import PSNR, SSIM, Comparison, Identification, Kind, LabelRecall, Metric
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol import Federation, learner_and_state
from leakgauge.report.progress import case_progress
from leakgauge.space import ImageSpace
from leakgauge.types import Batch, Outcome, Reconstruction

SHAPE = (1, 6, 6)
CLASSES = 4
METRICS = {"psnr": PSNR(), "identification": Identification(), "label_recall": LabelRecall()}


def images(count: int, seed: int) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(seed))


def labels(count: int) -> Tensor:
    return torch.arange(count) % CLASSES


def mlp(activation: type[nn.Module] = nn.ReLU) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(36, 8), activation(), nn.Linear(8, CLASSES))


def with_batch_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Dropout(0.5), nn.Linear(48, CLASSES)
    )


def a_round(batch_size: int = 1, seed: int = 0, distractors: int = 99) -> Round:
    truth = Batch(images(batch_size, seed), labels(batch_size))
    decoy = Batch(images(batch_size, seed + 1000), labels(batch_size))
    return Round(truth, (decoy,), images(distractors, seed + 2000))


def cases(
    attack: Any,
    *,
    model: nn.Module | None = None,
    loss: Any = cross_entropy,
    mode: Any = "eval",
    rounds: list[Round] | None = None,
    defence: str = "none",
    threat_model: str = "informed",
    seed: int = 0,
) -> list[Case]:
    learner, state = learner_and_state(mlp() if model is None else model, loss, mode=mode)
    return grid(
        Federation(learner, state, FedSGD()),
        [a_round()] if rounds is None else rounds,
        defences={defence: build_defence(defence)},
        attacks={"spy": attack},
        threat_model=THREAT_MODELS[threat_model],
        seed=seed,
    )


@dataclass(frozen=True)
class Spy:
    """An attack that notes all it was given, and guesses grey."""

    given: list[tuple[UpdateObservation, Tensor, Progress]] = field(default_factory=list, repr=False)

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        self.given.append((observation, generator.get_state(), progress))
        grey = torch.full((observation.num_examples or 1, *observation.space.shape), 0.5)
        return Reconstruction(grey, None, Outcome.SOLVED)


@dataclass(frozen=True)
class Failing:
    """An attack that ends with an error."""

    error: Exception

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        raise self.error


def reachable(thing: Any, seen: set[int] | None = None) -> Iterator[Tensor]:
    """Every tensor that can be reached through fields, containers, modules and the closures of functions."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, str | int | float | bool | type | None):
        return
    seen.add(id(thing))
    if isinstance(thing, Tensor):
        yield thing
        # The graph of a gradient would hold the images it was computed from.
        assert thing.grad_fn is None
        parts: list[Any] = [thing.grad]
    elif isinstance(thing, Mapping):
        parts = list(thing.values())
    elif isinstance(thing, tuple | list | set):
        parts = list(thing)
    elif isinstance(thing, FunctionType):
        parts = [cell.cell_contents for cell in thing.__closure__ or ()] + list(thing.__defaults__ or ())
    else:
        parts = list(getattr(thing, "__dict__", {}).values())
    for part in parts:
        yield from reachable(part, seen)


def shows(tensor: Tensor, private: Tensor) -> bool:
    """Whether a tensor is one of the private images, whatever its shape, or shares memory with them."""
    if tensor.is_meta:
        return False
    if tensor.untyped_storage().data_ptr() == private.untyped_storage().data_ptr():
        return True
    pixels = private[0].numel()
    if not tensor.is_floating_point() or tensor.numel() % pixels:
        return False
    rows = tensor.detach().reshape(-1, pixels)
    return any(torch.allclose(row, image) for row in rows for image in private.reshape(-1, pixels))


def test_the_search_for_the_truth_finds_it_where_it_is() -> None:
    truth = a_round().truth

    def remembers(tick: Tick) -> Batch:
        return truth

    for holder in (truth, {"a": [truth.inputs]}, remembers, truth.inputs.clone().flatten(), truth.inputs[:, :, :3]):
        assert any(shows(tensor, truth.inputs) for tensor in reachable(holder))


@pytest.mark.parametrize("threat_model", THREAT_MODELS)
@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("defence", ["none", "clipping:max_norm=1+gaussian_noise:std=0.01"])
def test_the_attack_cannot_reach_the_truth(threat_model: str, mode: str, defence: str) -> None:
    spy, one = Spy(), a_round(batch_size=3)
    real, null = cases(
        spy, model=with_batch_norm(), mode=mode, rounds=[one], defence=defence, threat_model=threat_model
    )
    assert (real.null, null.null) == (False, True)
    with case_progress(Console(quiet=True), [real, null]) as watch:
        run_case(real, METRICS, watch(0, real.title))
        run_case(null, METRICS, watch(1, null.title))
    assert one.distractors is not None
    for observation, _, progress in spy.given:
        assert type(observation) is UpdateObservation
        for tensor in reachable((observation, progress)):
            for private in (one.truth.inputs, one.decoys[0].inputs, one.distractors):
                assert not shows(tensor, private)
        disclosed = THREAT_MODELS[threat_model].labels
        assert (observation.labels is not None) == disclosed


def test_the_real_case_and_its_null_start_from_the_same_random_state_and_rounds_do_not() -> None:
    spy = Spy()
    for case in cases(spy, rounds=[a_round(seed=1), a_round(seed=2)]):
        run_case(case, METRICS)
    first, first_null, second, second_null = (state for _, state, _ in spy.given)
    assert torch.equal(first, first_null)
    assert torch.equal(second, second_null)
    assert not torch.equal(first, second)


def test_the_null_sees_another_update_and_is_scored_against_the_same_truth() -> None:
    spy, one = Spy(), a_round()
    real, null = (run_case(case, METRICS) for case in cases(spy, rounds=[one]))
    (seen, _, _), (seen_null, _, _) = spy.given
    assert not torch.equal(seen.update.params["1.weight"], seen_null.update.params["1.weight"])
    for record in (real, null):
        assert record.pictures.originals is not None
        assert torch.equal(record.pictures.originals, one.truth.inputs)


def test_a_defence_changes_neither_the_victims_nor_the_start_of_the_attack() -> None:
    spy = Spy()
    for defence in ("none", "gaussian_noise:std=0.1"):
        run_case(cases(spy, defence=defence)[0], METRICS)
    (bare, start, _), (noisy, start_again, _) = spy.given
    assert torch.equal(start, start_again)
    difference = noisy.update.params["1.weight"] - bare.update.params["1.weight"]
    assert 0.05 < float(difference.std()) < 0.2  # the noise, and only that


def test_a_linear_layer_gives_away_its_input_and_its_null_does_not() -> None:
    """Geiping et al. 2020, Prop. 3.1: with one image the recovery is exact; an unrelated update tells nothing."""
    planned = cases(LinearLayer(), rounds=[a_round(seed=seed) for seed in (1, 2, 3)])
    result = execute(PreparedAudit(planned, standard_metrics(), {}), None)
    (row,) = result.rows
    assert row.measurements["identification"].attack.mean == 1.0
    assert row.measurements["identification"].null.mean == 0.0
    assert row.measurements["psnr"].attack.mean > 100
    assert row.measurements["psnr"].null.mean < 20
    assert row.verdict is Verdict.LEAKS
    assert (row.rounds, row.victims, row.outcome) == (3, 3, Outcome.SOLVED)


def test_a_guess_that_ignores_the_update_is_no_leak() -> None:
    (row,) = execute(
        PreparedAudit(cases(Spy(), rounds=[a_round(seed=seed) for seed in range(5)]), METRICS, {}), None
    ).rows
    assert row.measurements["psnr"].attack.mean == pytest.approx(row.measurements["psnr"].null.mean)
    # It ignores the controls' updates too: nothing shows that a leak would have been found.
    assert (row.verdict, row.judgement.reasons) == (Verdict.INCONCLUSIVE, (Reason.CONTROL_FAILED,))


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (MissingKnowledge("It needs `labels`, which are hidden."), Outcome.MISSING_KNOWLEDGE),
        (UnsupportedModel("There is no linear head."), Outcome.NOT_APPLICABLE),
    ],
)
def test_an_attack_that_cannot_run_is_a_recorded_outcome(error: Exception, outcome: Outcome) -> None:
    record = run_case(cases(Failing(error))[0], METRICS)
    assert (record.outcome, record.reason) == (outcome, str(error))
    assert all(math.isnan(score) for scores in record.scores.values() for score in scores)


def test_without_a_truth_nothing_is_scored_and_the_images_are_kept() -> None:
    case = replace(cases(Spy())[0], truth=None, distractors=None)
    record = run_case(case, METRICS)
    assert record.scores == {}
    assert math.isnan(record.chance)
    assert record.batch_size == 1
    assert record.pictures.originals is None
    assert record.pictures.reconstructions is not None


def test_finished_cases_are_not_run_again() -> None:
    spy, store = Spy(), MemoryStore()
    planned = cases(spy)
    first = list(InProcess().run(planned, METRICS, store))
    assert list(InProcess().run(planned, METRICS, store)) == first
    assert len(spy.given) == 2


def test_each_result_is_kept_before_the_next_case_begins() -> None:
    store = MemoryStore()
    planned = cases(Spy())
    stream = InProcess().run(planned, METRICS, store)
    next(stream)
    assert store.get(planned[0].key) is not None
    assert store.get(planned[1].key) is None


def test_the_same_case_has_the_same_key_and_running_it_again_gives_the_same_record() -> None:
    left, right = cases(LinearLayer()), cases(LinearLayer())
    assert [case.key for case in left] == [case.key for case in right]
    assert len({case.key for case in left}) == 2

    def comparable(record: Record) -> str:
        return repr(replace(record, seconds=0.0, cpu_seconds=0.0))

    assert [comparable(run_case(case, METRICS)) for case in left] == [
        comparable(run_case(case, METRICS)) for case in right
    ]


def test_a_case_with_dropout_depends_on_its_seed_and_not_on_the_global_stream() -> None:
    torch.manual_seed(0)
    # Dropout before BatchNorm: the disclosed statistics depend on what was dropped.
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(36, 8), nn.BatchNorm1d(8), nn.Linear(8, CLASSES))
    observed = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        spy = Spy()
        options: dict[str, Any] = {"mode": "train", "threat_model": "strongest", "rounds": [a_round(batch_size=3)]}
        case = cases(spy, model=model, **options)[0]
        observed.append((case.key, run_case(case, METRICS).scores, spy.given[0][0]))
    (key, scores, first), (same_key, same_scores, second) = observed
    assert repr((key, scores)) == repr((same_key, same_scores))
    assert first.batch_norm.statistics is not None
    assert second.batch_norm.statistics is not None
    assert torch.equal(first.batch_norm.statistics.mean["3"], second.batch_norm.statistics.mean["3"])
    assert torch.equal(first.update.params["2.weight"], second.update.params["2.weight"])


def nudged(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        next(model.parameters()).add_(1e-4)
    return model


class Halved(nn.Module):
    """Computes something else than the network inside, with the same weights and the same description."""

    def __init__(self, scale: float) -> None:
        super().__init__()
        self.inner = mlp()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * self.scale


def test_whatever_changes_the_result_changes_the_key() -> None:
    one, other = a_round(), a_round(seed=5)
    variants: dict[str, Callable[[], list[Case]]] = {
        "plain": lambda: cases(LinearLayer()),
        "seed": lambda: cases(LinearLayer(), seed=1),
        "attack": lambda: cases(LinearLayer(labels=None)),
        "defence": lambda: cases(LinearLayer(), defence="pruning:keep=0.5"),
        "threat model": lambda: cases(LinearLayer(), threat_model="unaware"),
        "mode": lambda: cases(LinearLayer(), mode="train"),
        "weights": lambda: cases(LinearLayer(), model=nudged(mlp())),
        "activation": lambda: cases(LinearLayer(), model=mlp(nn.Sigmoid)),
        "loss": lambda: cases(LinearLayer(), loss=multi_margin_loss),
        "images": lambda: cases(LinearLayer(), rounds=[replace(one, truth=other.truth)]),
        "labels": lambda: cases(LinearLayer(), rounds=[replace(one, truth=Batch(one.truth.inputs, labels(2)[1:]))]),
        "crowd": lambda: cases(LinearLayer(), rounds=[replace(one, distractors=other.distractors)]),
        "code": lambda: cases(LinearLayer(), model=Halved(0.5)),
        "same code": lambda: cases(LinearLayer(), model=Halved(0.25)),
    }
    keys = {name: make()[0].key for name, make in variants.items()}
    assert len(set(keys.values())) == len(keys), keys


def test_the_key_of_a_recorded_update_covers_the_model_and_all_that_is_known() -> None:
    def observed(model: nn.Module, **options: Any) -> UpdateObservation:
        return cases(Spy(), model=model, **options)[0].source.observe()

    plain = observed(mlp())
    sigmoid = replace(plain, learner=observed(mlp(nn.Sigmoid)).learner)
    variants = [
        plain,
        sigmoid,
        replace(plain, labels=None),
        replace(plain, num_examples=None),
        replace(plain, local_update=None),
        replace(plain, space=ImageSpace(1, 4, 9)),
        replace(plain, update=observed(mlp(), defence="pruning:keep=0.5").update),
    ]
    prints = [RecordedUpdate(one).fingerprint() for one in variants]
    assert len(set(prints)) == len(prints)
    assert RecordedUpdate(observed(mlp())).fingerprint() == prints[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_a_digest_takes_every_type_and_tells_shapes_types_and_order_apart(dtype: torch.dtype) -> None:
    tensor = torch.tensor([[0, 1]]).to(dtype)
    scalar = torch.tensor(1).to(dtype)
    digests = {
        digest((), (tensor,), ()),
        digest((), (tensor.T,), ()),
        digest((), (tensor.flip(1),), ()),
        digest((), (tensor, scalar), ()),
        digest((), (scalar, tensor), ()),
        digest((), (tensor.to(torch.uint8),), ()),
        digest(("a", "b"), (), ()),
        digest(("ab",), (), ()),
    }
    assert len(digests) == 8


class Unable(Metric):
    """A metric that lacks what it needs to measure."""

    serves = Kind.IMAGES
    lacks = "its weights"

    def __call__(self, comparison: Comparison) -> Tensor:
        return torch.full((len(comparison.originals),), torch.nan)


def test_what_could_not_be_measured_is_measured_once_it_can_be(tmp_path: Path) -> None:
    (case, _) = cases(Spy())
    store = FolderStore.create(tmp_path)
    store.put(run_case(case, {"psnr": Unable(), "identification": Identification()}))
    fresh = run_case(case, {"psnr": PSNR(), "ssim": SSIM(), "identification": Identification()})
    later = recall(case.key, {"psnr": PSNR(), "ssim": SSIM(), "identification": Identification()}, store)
    assert later is not None
    assert later.scores == fresh.scores
    kept = store.get(case.key)
    assert kept is not None
    assert kept.scores["psnr"] == fresh.scores["psnr"]
    # What was measured is not measured again, and never replaced by "not measured".
    again = recall(case.key, {"psnr": Unable(), "identification": Unable()}, store)
    assert again is not None
    assert again.scores["psnr"] == fresh.scores["psnr"]


def test_a_changed_attack_never_returns_an_old_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, spy = FolderStore.create(tmp_path), Spy()
    (old, *_) = InProcess().run(cases(spy), METRICS, store)
    list(InProcess().run(cases(spy), METRICS, store))
    assert len(spy.given) == 2  # the real case and its null, once
    monkeypatch.setattr(case_module, "answering_code", lambda: "mended")
    monkeypatch.setattr(run_module, "answering_code", lambda: "mended")
    (new, *_) = InProcess().run(cases(spy), METRICS, store)
    assert len(spy.given) == 4
    assert (new.key != old.key, new.code) == (True, "mended")
    assert store.get(old.key) is not None


def test_the_code_of_a_users_own_attack_is_part_of_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    before = cases(Spy())[0].key
    monkeypatch.setattr(case_module, "foreign_code", lambda *things: "edited")
    assert cases(Spy())[0].key != before


def test_a_record_without_originals_is_recalled_as_it_is(make_record: MakeRecord) -> None:
    store = MemoryStore()
    record = make_record(scores={}, pictures=Pictures(None, torch.zeros(1, *SHAPE)))
    store.put(record)
    assert recall(record.key, METRICS, store) is record
    assert recall("unknown", METRICS, store) is None


def test_an_audit_of_nothing_is_refused() -> None:
    with pytest.raises(InvalidCase, match="at least one round, one defence and one attack"):
        cases(Spy(), rounds=[])


def test_a_truth_that_does_not_fit_the_model_is_refused_before_any_attack() -> None:
    spy = Spy()
    wrong = replace(a_round(), truth=Batch(images(1, 0), torch.tensor([CLASSES])))
    with pytest.raises(InvalidCase, match="4 classes"):
        cases(spy, rounds=[a_round(), wrong])
    assert not spy.given
