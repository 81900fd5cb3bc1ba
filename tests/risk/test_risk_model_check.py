"""A check says without data what an audit would find applicable, and refuses what does not run."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss

import leakgauge
from leakgauge.attacks.base import LabelAttack
from leakgauge.catalogue import ATTACKS, DEFENCES
from leakgauge.config import build_attack, build_loss
from leakgauge.data import Text
from leakgauge.errors import InvalidCase
from leakgauge.models import GPT
from leakgauge.protocol.learner import Mode
from leakgauge.protocol.losses import NextToken
from leakgauge.risk import ModelCheck, check
from leakgauge.risk.client import noise_client
from leakgauge.risk.cost import measure_route
from leakgauge.risk.layers import layer_risks
from leakgauge.risk.trials import try_defences
from leakgauge.space import ImageSpace
from leakgauge.training.models import model_for


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 5 * 5, 4)
    )


def dense() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(192, 24), nn.ReLU(), nn.Linear(24, 10))


def only(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """A catalogue of few attacks, so that a check is quick."""
    monkeypatch.setattr("leakgauge.risk.trials.ATTACKS", {name: ATTACKS[name] for name in names})


def by_name(found: ModelCheck) -> dict[str, bool | None]:
    return {one.name: one.applies for one in (*found.attacks, *found.defences)}


def test_every_attack_and_defence_of_the_catalogue_applies_or_says_why_not() -> None:
    found = check(normed(), input_shape=(3, 12, 12))
    assert [one.name for one in found.attacks] == list(ATTACKS)
    assert [one.name for one in found.defences] == list(DEFENCES)
    parts = (*found.attacks, *found.defences)
    assert all(one.applies or one.why for one in parts)
    assert not any("fails on this model" in one.why for one in parts), parts
    assert by_name(found)["best"]
    assert found.cost is not None
    assert found.cost.seconds > 0
    assert found.cost.conclusive


@pytest.mark.parametrize("size", [1, 3])
def test_what_applies_is_what_an_audit_finds_applicable(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "linear_layer", "fully_connected", "patch_embedding", "best_labels", "ilrg", "soft_label", "zlg")
    model = dense()
    checked = check(model, input_shape=(3, 8, 8), batch_size=size)
    assert "linear_layer" in checked.closed_alone  # told for larger batches too
    assert ("linear_layer" in checked.closed) == (size == 1)
    assert checked.largest_batch == 23
    assert checked.exposed
    found = {one.name: one for one in checked.attacks}
    batch = torch.rand(size, 3, 8, 8), torch.arange(size)
    for hidden in (False, True):
        names = [name for name in found if isinstance(build_attack(name), LabelAttack) == hidden]
        result = leakgauge.audit(
            model, batch=batch, attacks=names, defences=["none"], nulls=0, distractors=1,
            threat_model="honest_but_curious" if hidden else "informed",
        )  # fmt: skip
        ran = {
            record.attack: record.outcome.name not in ("NOT_APPLICABLE", "MISSING_KNOWLEDGE")
            for record in result.records
        }
        assert ran == {name: bool(found[name].applies) and "auxiliary" not in found[name].why for name in names}


def test_dp_sgd_needs_examples_that_do_not_meet_in_batch_norm() -> None:
    modes: tuple[Mode, Mode] = ("eval", "train")
    clients = (noise_client(normed(), cross_entropy, ImageSpace(3, 12, 12), 2, mode, None) for mode in modes)
    allowed, refused = ({one.name: one for one in try_defences(client)}["dpsgd"] for client in clients)
    assert allowed.applies
    assert not refused.applies
    assert "BatchNorm mixes the examples" in refused.why


def test_rows_of_a_table_are_not_attacked_with_priors_of_images(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "best", "inverting_gradients")
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    found = check(model, input_shape=(6,))
    assert by_name(found)["best"]
    assert not by_name(found)["inverting_gradients"]
    assert not by_name(found)["instahide"]
    assert found.inputs.startswith("rows of 6")


def test_a_model_of_texts_is_attacked_by_what_serves_texts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "token_spans", "tag", "lamp", "best", "exact", "quasi_newton")
    texts = Text()(None)
    model = model_for(texts, GPT(width=64, layers=1), seed=0)
    found = check(model, NextToken(), space=texts.space)
    applies = {one.name: one.applies for one in found.attacks}
    assert applies == {
        "token_spans": True,
        "tag": True,
        "lamp": True,
        "best": False,
        "exact": False,
        "quasi_newton": False,
    }
    assert found.cost is not None  # what a step of matching costs is told for texts as well
    (why,) = {one.why for one in found.attacks if one.name == "quasi_newton"}
    assert "tokens of texts are names; use token_spans or tag" in why


def test_what_serves_texts_alone_does_not_apply_to_images(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "tag", "lamp")
    found = check(dense(), input_shape=(3, 8, 8))
    assert [(one.applies, one.why) for one in found.attacks] == [
        (False, "the model takes images, and the attack serves texts")
    ] * 2


class Detector(nn.Module):
    """Boxes and scores, in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, stride=2)
        self.boxes, self.scores = nn.Linear(8, 4), nn.Linear(8, 5)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        features = torch.tanh(self.body(x)).mean((2, 3))
        return {"boxes": self.boxes(features), "scores": self.scores(features)}


def detection_loss(output: dict[str, Tensor], labels: Tensor) -> Tensor:
    return mse_loss(output["boxes"], labels[:, :4]) + cross_entropy(output["scores"], labels[:, 4].long())


@pytest.mark.parametrize(
    ("model", "loss", "labels"),
    [
        (Detector(), detection_loss, torch.tensor([[0.1, 0.2, 0.3, 0.4, 2.0]])),
        (Detector(), lambda output, labels: mse_loss(output["boxes"], labels), None),
        (Detector(), lambda output, labels: cross_entropy(output["scores"], labels), None),
        (normed(), "multi_label", None),
        (normed(), "mse", None),
        (normed(), lambda output, labels: binary_cross_entropy_with_logits(output[:, 0], labels.float()), None),
        (nn.Sequential(nn.Flatten(), nn.Linear(432, 1)), "bce", None),
    ],
)  # fmt: skip
def test_any_loss_whose_labels_can_be_guessed_is_checked(model: nn.Module, loss: Any, labels: Tensor | None) -> None:
    loss = build_loss(loss) if isinstance(loss, str) else loss
    client = noise_client(model, loss, ImageSpace(3, 12, 12), 2, "eval", labels)
    assert measure_route(client).cost is not None
    assert layer_risks(client.learner, client.state, client.space, client.batch)


def test_labels_that_cannot_be_guessed_are_asked_for() -> None:
    def loss(output: dict[str, Tensor], labels: Tensor) -> Tensor:
        return mse_loss(output["boxes"], labels[:, 3:7])

    with pytest.raises(InvalidCase, match="only its author knows") as caught:
        check(Detector(), loss, input_shape=(3, 12, 12))
    assert "labels=...) from Python" in str(caught.value)


@pytest.mark.filterwarnings("ignore:Lazy modules")
@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (normed, {"input_shape": (1, 12, 12)}, r"layer '0' \(Conv2d\) takes 3 channels and got 1"),
        (normed, {"input_shape": (3, 14, 14)}, r"layer '4' \(Linear\) takes 200 features and got 288"),
        (normed, {"input_shape": (3, 12)}, "neither images"),
        (lambda: nn.Sequential(nn.LazyConv2d(4, 3)), {"input_shape": (3, 9, 9)}, r"layer '0' \(LazyConv2d\) has no"),
        (normed, {}, "needs the shape of an input"),
        (normed, {"input_shape": (3, 12, 12), "batch_size": 0}, "one example or more"),
        (normed, {"input_shape": (3, 12, 12), "mode": "test"}, "no mode 'test'"),
    ],
)
def test_what_does_not_run_is_refused_with_its_layer(
    make: Callable[[], nn.Module], options: dict[str, Any], said: str
) -> None:
    with pytest.raises(InvalidCase, match=said):
        check(make(), **options)


def test_what_a_slow_batch_costs_follows_from_a_part_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leakgauge.risk.client._AFFORDED", 1e-9)
    only(monkeypatch, "best", "soft_label")
    found = check(normed(), input_shape=(3, 12, 12), batch_size=8)
    assert found.cost is not None
    assert found.cost.computed == 1
    assert found.batch_size == 8
    assert by_name(found)["mixup"]  # of eight examples, although one was computed with
    assert not by_name(found)["soft_label"]


def test_what_there_is_no_time_for_is_not_tried_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "linear_layer", "class_gradients")
    found = check(dense(), input_shape=(3, 8, 8), seconds=1e-9)
    assert [one.applies for one in found.attacks] == [None, None]
    assert "an audit tries it" in found.attacks[0].why


class Switching(nn.Module):
    """Its flow depends on values, so that no network can be read off it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Conv2d(3, 8, 3), nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        features = torch.tanh(self.body(x)).mean((2, 3))
        return self.head(features if float(x.detach().mean()) > -1 else -features)


def test_a_model_that_cannot_be_read_says_so_and_is_attacked_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch, "best")
    found = check(Switching(), input_shape=(3, 8, 8))
    assert found.layers == ()
    assert found.unread is not None
    assert found.cost is not None
    assert found.cost.route == "DoubleBackward"
    assert found.changes == ()
