"""Every malicious construction is seen, with its evidence, and no honest model is accused."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune

import architectures
import leakgauge
from leakgauge.attacks.malicious import (
    BinnedAdapter,
    ClassFishing,
    ConcatenatedInput,
    FeatureFishing,
    FrontLayer,
    IdentityConvolutions,
    LabelFlip,
    MaliciousAttack,
    SparseFrontLayer,
    TrapWeights,
)
from leakgauge.catalogue import ATTACKS, MODELS
from leakgauge.cli import main
from leakgauge.config import build
from leakgauge.data import Digits
from leakgauge.errors import InvalidCase
from leakgauge.files import write_tensors
from leakgauge.models import build as build_model
from leakgauge.protocol import Federation, FedSGD, learner_and_state
from leakgauge.randomness import seeded
from leakgauge.risk.vetting import VettedModel, vet, vet_learner, vet_weights
from leakgauge.space import ImageSpace
from leakgauge.training.train import Training, train

SPACE = ImageSpace(3, 16, 16)
DIGITS = Digits()()


def catalogue_model(words: str, space: ImageSpace = SPACE) -> nn.Module:
    return build_model(build(MODELS, words, kind="model"), space.shape, 10, seed=0)


class Tokens(nn.Module):
    """A transformer whose tokens have more channels than a patch has pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 64, 4, stride=4)
        self.places = nn.Parameter(torch.randn(1, 16, 64))
        self.block = nn.TransformerEncoderLayer(64, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.block(self.embed(images).flatten(2).mT + self.places).mean(1))


MALICIOUS: Mapping[str, tuple[MaliciousAttack, Callable[[], nn.Module], str]] = {
    "front layer": (FrontLayer(), lambda: catalogue_model("compact"), "linear layer in front of convolutions"),
    "front layer, four measures": (
        FrontLayer(bins=64, measures=4),
        lambda: catalogue_model("mlp"),
        "identical rows with shifted biases",
    ),
    "sparse front layer": (SparseFrontLayer(), lambda: catalogue_model("lenet"), "identical rows with shifted biases"),
    "traps": (TrapWeights(), lambda: catalogue_model("mlp"), "trapped rows"),
    "identity convolutions": (IdentityConvolutions(), lambda: catalogue_model("lenet"), "identity convolutions"),
    "image beside features": (ConcatenatedInput(), lambda: catalogue_model("compact"), "the image behind layers"),
    "image beside features, head kept": (
        ConcatenatedInput(blank_head=False),
        lambda: catalogue_model("mlp"),
        "the image behind layers",
    ),
    "class fishing": (ClassFishing(), lambda: catalogue_model("compact"), "silenced classes"),
    "feature fishing": (FeatureFishing(), lambda: catalogue_model("compact"), "absurd weights"),
    "binned adapter": (BinnedAdapter(bins=200), Tokens, "identical rows with shifted biases"),
    "permuted head": (LabelFlip(), lambda: catalogue_model("compact"), "permuted head"),
    "two classes swapped": (LabelFlip(classes=(2, 5)), lambda: catalogue_model("lenet"), "permuted head"),
}


def kinds(found: VettedModel) -> set[str]:
    return {one.kind for one in found.suspicions}


def test_every_malicious_attack_of_the_catalogue_is_among_those_tried() -> None:
    known = {type(made) for made in (build(ATTACKS, name, kind="attack") for name in ATTACKS)}
    assert {one for one in known if issubclass(one, MaliciousAttack)} == {type(one) for one, *_ in MALICIOUS.values()}


@pytest.mark.parametrize("name", MALICIOUS)
def test_a_malicious_construction_is_seen_and_its_honest_model_is_not(name: str) -> None:
    attack, make, expected = MALICIOUS[name]
    torch.manual_seed(0)
    honest = make()
    learner, state = learner_and_state(honest)
    before = {**state.params, **state.buffers}
    sent = attack.tamper(Federation(learner, state, FedSGD()), SPACE)
    assert sent.learner.tampering is not None
    assert sent.learner.tampering.refusal is None
    assert not vet(honest, space=SPACE, reference=before).suspicious
    needs_reference = isinstance(attack, LabelFlip)
    found = vet_learner(sent.learner, sent.state, SPACE, before if needs_reference else None)
    assert expected in kinds(found)
    for one in found.suspicions:
        assert one.sentence.endswith(".")
        assert one.where in one.sentence or "classifier" in one.sentence
    assert vet_learner(sent.learner, sent.state, SPACE, before).suspicious


@pytest.mark.parametrize("name", [*architectures.ARCHITECTURES])
def test_no_honest_architecture_is_accused_untrained(name: str) -> None:
    found = vet(architectures.build(name), input_shape=(3, 32, 32))
    assert found.suspicions == ()
    assert len(found.unchecked) == 2  # there is neither a reference nor data


@pytest.mark.parametrize(
    ("words", "steps"), [("mlp", 150), ("mlp:hidden=[64,64]", 300), ("compact", 40), ("lenet", 60), ("fcn3", 60)]
)
def test_no_honest_model_is_accused_after_training_and_its_flipped_head_is(words: str, steps: int) -> None:
    space = DIGITS.space
    assert isinstance(space, ImageSpace)
    model = catalogue_model(words, space)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    train(model, DIGITS.train, replace(Training(), steps=steps), generator=seeded(0, "train"))
    own = DIGITS.test[:24]
    found = vet(model, space=space, reference=before, batch=own)
    assert (found.suspicions, found.unchecked) == ((), ())
    learner, state = learner_and_state(model)
    sent = LabelFlip().tamper(Federation(learner, state, FedSGD()), space)
    assert "permuted head" in kinds(vet_learner(sent.learner, sent.state, space, model.state_dict()))
    fished = ClassFishing(target=3).tamper(Federation(learner, state, FedSGD()), space)
    assert {"silent examples", "strange loss"} <= kinds(vet_learner(fished.learner, fished.state, space, None, own))


def honest_weights() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return {
        "a.weight": torch.randn(32, 48, generator=generator) / 7,
        "a.bias": torch.randn(32, generator=generator) / 7,
    }


def half_negated(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """As published: of each row a random half is the other half negated and scaled down [Boenisch et al., 2023]."""
    rows = []
    for number in range(32):
        order = torch.randperm(48, generator=torch.Generator().manual_seed(number))
        positive, row = weights["a.weight"][number, :24].abs() + 0.01, torch.zeros(48)
        row[order[:24]], row[order[24:]] = 0.95 * positive, -positive
        rows.append(row)
    return {**weights, "a.weight": torch.stack(rows)}


def bins_in_a_direction(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """A few rows of an otherwise honest layer, of other lengths."""
    changed = {name: tensor.clone() for name, tensor in weights.items()}
    changed["a.weight"][5:15] = torch.arange(1, 11)[:, None] * changed["a.weight"][4]
    return changed


def not_finite(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {**weights, "a.bias": weights["a.bias"].index_fill(0, torch.tensor(3), float("nan"))}


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (half_negated, "half-negated rows"),
        (bins_in_a_direction, "identical rows with shifted biases"),
        (not_finite, "non-finite weights"),
        (lambda weights: {**weights, "a.bias": weights["a.bias"] - 1e4}, "absurd weights"),
    ],
)
def test_what_others_build_is_seen_in_the_weights_alone(change: Callable[[Any], Any], expected: str) -> None:
    weights = honest_weights()
    assert not vet_weights(weights).suspicious
    assert expected in kinds(vet_weights(change(weights)))
    assert not vet_weights(weights, {f"module.{name}": 1.1 * tensor for name, tensor in weights.items()}).suspicious


def test_a_head_that_was_scaled_or_replaced_since_the_round_before_is_seen() -> None:
    model = catalogue_model("compact")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    head = next(name for name in reversed(before) if name.endswith("weight"))
    with torch.no_grad():
        dict(model.named_parameters())[head][4] *= 20
    assert "scaled head" in kinds(vet(model, space=SPACE, reference=before))
    other = build_model(build(MODELS, "compact", kind="model"), SPACE.shape, 10, seed=1)
    assert "replaced weights" in kinds(vet(other, space=SPACE, reference=before))


def digits_net(zero_head: bool = False) -> nn.Sequential:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    if zero_head:
        nn.init.zeros_(made[3].weight)
    return made


class NormalisedPixels(nn.Module):
    """A residual net as torchvision initialises it, for pixels in [0, 255]."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor([123.675, 116.28, 103.53]).view(3, 1, 1))
        self.stem, self.branch = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.norm, self.head = nn.GroupNorm(2, 8), nn.Linear(8, 10)
        nn.init.zeros_(self.norm.weight)

    def forward(self, images: Tensor) -> Tensor:
        hidden = self.stem(255 * images - self.mean).relu()
        return self.head((hidden + self.norm(self.branch(hidden))).mean((2, 3)))


def with_adapters() -> nn.Module:
    import peft

    return peft.get_peft_model(digits_net(), peft.LoraConfig(r=4, target_modules=["1"]))


def vision_transformer() -> nn.Module:
    import transformers

    small = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 48}
    made = transformers.ViTForImageClassification(transformers.ViTConfig(**small, image_size=16, patch_size=4))

    class Scores(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = made

        def forward(self, images: Tensor) -> Tensor:
            return self.body(pixel_values=images).logits

    return Scores()


def pruned() -> nn.Module:
    made = digits_net()
    prune.ln_structured(made[1], "weight", 0.8, 2, 0)
    prune.remove(made[1], "weight")
    return made


@pytest.mark.parametrize(
    ("make", "shape"),
    [
        (lambda: digits_net(zero_head=True), (1, 8, 8)),
        (NormalisedPixels, (3, 16, 16)),
        (with_adapters, (1, 8, 8)),
        (vision_transformer, (3, 16, 16)),
        (pruned, (1, 8, 8)),
    ],
    ids=["zero head", "zero branch, pixels to 255", "adapters", "their vision transformer", "pruned rows"],
)
def test_no_honest_model_of_other_people_is_accused(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> None:
    found = vet(make(), input_shape=shape)
    assert found.suspicions == ()
    assert len(found.unchecked) == 2


def test_a_head_that_began_at_zero_may_turn_in_its_first_rounds() -> None:
    model = digits_net(zero_head=True)
    for rate, steps in ((0.01, 1), (0.05, 30), (0.05, 30)):
        before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
        train(model, DIGITS.train, Training(steps=steps, learning_rate=rate), generator=seeded(0, "train"))
        assert vet(model, input_shape=(1, 8, 8), reference=before, batch=DIGITS.test[:64]).suspicions == ()


@pytest.fixture(scope="module")
def learnt() -> nn.Sequential:
    model = digits_net()
    train(model, DIGITS.train, Training(steps=300, learning_rate=0.05), generator=seeded(0, "train"))
    return model


def changed(model: nn.Sequential, change: Callable[[nn.Sequential], None]) -> nn.Sequential:
    other = copy.deepcopy(model)
    with torch.no_grad():
        change(other)
    return other


def swap_rows(model: nn.Sequential) -> None:
    order = torch.tensor([0, 1, 5, 3, 4, 2, 6, 7, 8, 9])
    model[3].weight.copy_(model[3].weight[order])
    model[3].bias.copy_(model[3].bias[order])


def noisy_bins(model: nn.Sequential) -> None:
    """A server that hides its bins below noise of a tenth."""
    model[1].weight.copy_((1 + 0.1 * torch.randn(64, 64, generator=torch.Generator().manual_seed(1))) / 8)
    model[1].bias.copy_(-torch.linspace(1, 6, 64))


def quantile_biases(model: nn.Sequential) -> None:
    """Random rows, each of which one input in fifty activates."""
    model[1].weight.copy_(torch.randn(64, 64, generator=torch.Generator().manual_seed(1)))
    model[1].bias.copy_(-(DIGITS.train.inputs.flatten(1) @ model[1].weight.mT).quantile(0.98, dim=0))


def lengthen_row(model: nn.Sequential) -> None:
    model[3].weight[3] *= 50


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (swap_rows, "permuted head"),
        (noisy_bins, "identical rows with shifted biases"),
        (quantile_biases, "trapped rows"),
        (lengthen_row, "scaled head"),
    ],
)
def test_own_data_shows_without_a_reference_what_was_done_to_a_trained_model(
    change: Callable[[nn.Sequential], None], expected: str, learnt: nn.Sequential
) -> None:
    own = DIGITS.test[:64]
    assert vet(learnt, input_shape=(1, 8, 8), batch=own).suspicions == ()
    assert expected in kinds(vet(changed(learnt, change), input_shape=(1, 8, 8), batch=own))


def test_a_model_that_takes_one_class_for_another_has_no_permuted_head(learnt: nn.Sequential) -> None:
    def forget(model: nn.Sequential) -> None:
        model[3].weight[5] = model[3].weight[2]
        model[3].bias[5] = model[3].bias[2] - 1

    found = vet(changed(learnt, forget), input_shape=(1, 8, 8), batch=DIGITS.test[:64])
    assert "permuted head" not in kinds(found)


def run_main(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    return int(ended.value.code or 0)


def test_the_command_says_yes_or_no_by_its_exit_code(tmp_path: Path, capsys: Any) -> None:
    model = catalogue_model("compact")
    learner, state = learner_and_state(model)
    sent = FrontLayer().tamper(Federation(learner, state, FedSGD()), SPACE)
    write_tensors(tmp_path / "before.safetensors", model.state_dict())
    write_tensors(tmp_path / "sent.safetensors", {**sent.state.params, **sent.state.buffers})
    moved = {name: one * 1.01 if one.is_floating_point() else one for name, one in model.state_dict().items()}
    np.savez(tmp_path / "next.npz", **{name: tensor.numpy() for name, tensor in moved.items()})
    reference = ("--reference", tmp_path / "before.safetensors")
    assert run_main("vet", tmp_path / "next.npz", *reference) == 0
    assert "no proof" in capsys.readouterr().out
    assert run_main("vet", tmp_path / "sent.safetensors", *reference, "--json") == 1
    found = json.loads(capsys.readouterr().out)
    assert {"changed architecture", "identical rows with shifted biases"} <= {row["kind"] for row in found["rows"]}
    assert run_main("vet", "compact", "--input", "3,16,16") == 0
    assert run_main("vet", tmp_path / "sent.safetensors", "--model", "compact", "--input", "3,16,16") == 1
    assert run_main("vet", tmp_path / "nowhere.pt") == 2
    with pytest.raises(InvalidCase, match="input_shape"):
        leakgauge.vet(model)
