"""A round on disk: nothing lost, nothing added, nothing run, and every damage named."""

from __future__ import annotations

import copy
import json
import os
import struct
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save, save_file
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from leakgauge.attacks.matching import LBFGS, Budget, GradientMatching
from leakgauge.attacks.recipes import best
from leakgauge.defences import Pruning
from leakgauge.errors import InvalidCase, InvalidFile, InvalidUpdate, LeakGaugeError
from leakgauge.files import atomic_path, read_tensors, writable_folder, write_tensors, write_text
from leakgauge.models import Compact, ConvNet, build
from leakgauge.protocol import (
    THREAT_MODELS,
    BatchNormAccess,
    BatchNormKnowledge,
    FedAvg,
    FedSGD,
    fedavg,
    learner_and_state,
)
from leakgauge.protocol.client_parts import Sharing
from leakgauge.protocol.recording import FORMAT, RecordedRound, not_shared, observe, read_round, write_round
from leakgauge.randomness import seeded
from leakgauge.types import Batch

SHAPE = (3, 9, 9)
MODULE = build(Compact(width=2), SHAPE, 5, seed=0)
BATCH = Batch(torch.rand(2, *SHAPE, generator=seeded(0)), torch.tensor([1, 3]))
FACTS = {
    "image_shape": list(SHAPE),
    "num_examples": 2,
    "local_update": "fedsgd",
    "defence": "none",
    "mode": "eval",
    "batch_norm": "proxy",
}


@pytest.fixture(scope="module")
def recorded(attacked) -> RecordedRound:
    return RecordedRound.of(attacked(MODULE, BATCH), local_update="fedsgd", defence="none")


@pytest.fixture(scope="module")
def written(recorded, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("round") / "round.safetensors"
    write_round(path, recorded)
    return path


def refusal(kind: type[LeakGaugeError] | tuple[type[LeakGaugeError], ...], action: Any, *, naming: str = "") -> str:
    """The message of the expected error, which is one line and names the culprit."""
    with pytest.raises(kind) as caught:
        action()
    message = str(caught.value)
    assert naming in message
    assert len(message.splitlines()) == 1
    return message


def read_or_refuse_in_one_line(action: Any) -> None:
    message = ""
    try:
        action()
    except LeakGaugeError as error:
        message = str(error)
    assert "\n" not in message


# Round trips


@pytest.mark.parametrize("mode", ["eval", "train"])
@pytest.mark.parametrize("name", THREAT_MODELS)
def test_a_round_comes_back_bit_for_bit(name, mode, tmp_path, attacked, bits, examples):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0), examples(3, SHAPE)
    seen = attacked(module, batch, threat_model=name, mode=mode, defence=Pruning(0.5))
    recorded = RecordedRound.of(seen, local_update="fedsgd", defence="pruning:keep=0.5")
    write_round(tmp_path / "round", recorded)
    again = read_round(tmp_path / "round")
    assert bits(again) == bits(recorded)
    # A model with other weights: everything must come from the file.
    module = build(ConvNet(width=2), SHAPE, 5, seed=9)
    back = observe(again, module, local_update=seen.local_update)
    assert bits(back) == bits(seen)
    for field in ("space", "num_examples", "local_update"):
        assert getattr(back, field) == getattr(seen, field)
    assert (back.learner.mode, back.batch_norm.access) == (seen.learner.mode, seen.batch_norm.access)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_attack_on_the_file_gives_what_it_gives_on_the_live_round(dtype, tmp_path, attacked, examples):
    module = build(Compact(width=2), SHAPE, 5, seed=0).to(dtype)
    live = attacked(module, examples(2, SHAPE, dtype=dtype), threat_model="honest_but_curious")
    write_round(tmp_path / "round", RecordedRound.of(live, local_update="fedsgd", defence="none"))
    read = observe(read_round(tmp_path / "round"), module, local_update=FedSGD())
    attack = GradientMatching(optimiser=LBFGS(), budget=Budget(steps=5), restarts=2)
    one, two = (attack(seen, generator=seeded(0)) for seen in (live, read))
    assert torch.equal(one.inputs, two.inputs)
    assert torch.equal(one.labels, two.labels)
    assert torch.equal(one.loss_trace, two.loss_trace)
    assert (one.outcome, one.facts) == (two.outcome, two.facts)


@pytest.mark.parametrize("name", THREAT_MODELS)
def test_the_file_holds_nothing_that_the_threat_model_hides(name, tmp_path, attacked, examples):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0), examples(3, SHAPE)
    model = THREAT_MODELS[name]
    seen = attacked(module, batch, threat_model=name, mode="train")
    write_round(tmp_path / "round", RecordedRound.of(seen, local_update="fedsgd", defence=None))
    tensors, metadata = read_tensors(tmp_path / "round")
    sections = {key.partition(".")[0] for key in tensors}
    assert ("labels" in sections) is model.labels
    assert ("batch_mean" in sections) is ("batch_variance" in sections) is (name == "strongest")
    facts = json.loads(metadata["round"])
    assert facts["num_examples"] == (3 if model.num_examples else None)
    assert facts["local_update"] == ("fedsgd" if model.local_hyperparameters else None)
    content = (tmp_path / "round").read_bytes()
    for image in batch.inputs:
        assert image.numpy().tobytes()[:64] not in content
    if not model.labels:
        assert batch.labels.numpy().tobytes() not in content


def test_before_minus_after_is_the_update_of_fedavg(examples, bits):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0).double().train(), examples(3, SHAPE, dtype=torch.float64)
    before = copy.deepcopy(module.state_dict())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    for _ in range(2):
        optimiser.zero_grad()
        cross_entropy(module(batch.inputs), batch.labels).backward()
        optimiser.step()
    recorded = RecordedRound.between(before, module.state_dict(), SHAPE, num_examples=3, mode="train")
    fresh = build(ConvNet(width=2), SHAPE, 5, seed=1).double()
    seen = observe(recorded, fresh, local_update=FedAvg(2, 3, 0.1))
    # The running statistics moved too, and are in the state dicts; the pseudo-gradient leaves them out.
    assert set(seen.update.params) == {name for name, _ in module.named_parameters()}
    learner, _ = learner_and_state(fresh, mode="train")
    expected = FedAvg(2, 3, 0.1)(learner, seen.state, batch, generator=seeded(0)).params
    for name, tensor in seen.update.params.items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-8, atol=1e-12)


def test_state_dicts_that_do_not_fit_together_are_refused():
    state = MODULE.state_dict()
    other = state | {"head.bias": torch.zeros(7)}
    refusal(InvalidUpdate, lambda: RecordedRound.between(state, other, SHAPE), naming="'head.bias'")


class Awkward(nn.Module):
    """What state dicts of real models hold or lack: tied weights under two names, a buffer that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(12, 12), nn.Linear(12, 12), nn.Linear(12, 5)
        self.second.weight = self.first.weight
        self.register_buffer("order", torch.arange(11, -1, -1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.second(self.first(images.flatten(1)[:, self.order]).tanh()).tanh())


def test_whole_state_dicts_of_tied_weights_and_unsaved_buffers_are_read(tmp_path, examples):
    module, batch = Awkward().double(), examples(2, (3, 2, 2), dtype=torch.float64)
    before = copy.deepcopy(module.state_dict())
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    cross_entropy(module(batch.inputs), batch.labels).backward()
    optimiser.step()
    write_round(tmp_path / "round", RecordedRound.between(before, module.state_dict(), (3, 2, 2), num_examples=2))
    seen = observe(read_round(tmp_path / "round"), Awkward().double(), local_update=FedAvg(1, 2, 0.5))
    expected = seen.local_update.expected(seen.learner, seen.state, batch, observed=seen.update.params)
    assert "second.weight" not in seen.update.params
    for name, tensor in expected.items():
        torch.testing.assert_close(tensor, seen.update.params[name], rtol=1e-9, atol=1e-12)


# Files that are not a round


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_file_truncated_at_any_byte_is_refused(share, written, tmp_path):
    content = written.read_bytes()
    broken = tmp_path / "broken"
    broken.write_bytes(content[: int(share * len(content))])
    refusal(InvalidFile, lambda: read_round(broken), naming=str(broken))


@pytest.mark.parametrize("length", [*range(9), 16, 100])
def test_a_file_that_ends_in_its_header_is_refused(length, written, tmp_path):
    broken = tmp_path / "broken"
    broken.write_bytes(written.read_bytes()[:length])
    refusal(InvalidFile, lambda: read_round(broken), naming=str(broken))


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(max_size=300))
def test_random_bytes_are_refused(content, tmp_path):
    (tmp_path / "noise").write_bytes(content)
    refusal(InvalidFile, lambda: read_round(tmp_path / "noise"), naming="noise")


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_damaged_header_is_refused_or_read_as_what_it_says(position, byte, written, tmp_path):
    content = bytearray(written.read_bytes())
    (length,) = struct.unpack("<Q", content[:8])
    content[position % (8 + length)] = byte
    (tmp_path / "damaged").write_bytes(content)
    read_or_refuse_in_one_line(lambda: observe(read_round(tmp_path / "damaged"), MODULE, local_update=FedSGD()))


class Trap:
    """Unpickled, it makes a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_is_refused_without_being_run(zipped, tmp_path):
    path, folder = tmp_path / "checkpoint.pt", tmp_path / "sprung"
    torch.save({"update": Trap(folder)}, path, _use_new_zipfile_serialization=zipped)
    refusal(InvalidFile, lambda: read_round(path), naming="pickled")
    assert not folder.exists()


def test_a_missing_file_or_a_folder_is_refused(tmp_path):
    refusal(InvalidFile, lambda: read_round(tmp_path / "nowhere"), naming="nowhere")
    refusal(InvalidFile, lambda: read_round(tmp_path), naming=str(tmp_path))


def tensors_of(recorded: RecordedRound) -> dict[str, Tensor]:
    state = {f"state.{name}": tensor for name, tensor in recorded.state.items()}
    update = {f"update.{name}": tensor for name, tensor in recorded.update.items()}
    return {**state, **update, "labels": torch.tensor([1, 3])}


@pytest.mark.parametrize("tag", [None, "", "leakgauge-round/2", "pt"])
def test_another_format_is_refused_by_its_tag(tag, recorded, tmp_path):
    metadata = {"round": json.dumps(FACTS)} | ({} if tag is None else {"format": tag})
    write_tensors(tmp_path / "other", tensors_of(recorded), metadata)
    refusal(InvalidFile, lambda: read_round(tmp_path / "other"), naming=repr(tag))


def test_a_plain_file_of_weights_is_not_a_round(tmp_path):
    save_file(MODULE.state_dict(), tmp_path / "weights.safetensors")
    refusal(InvalidFile, lambda: read_round(tmp_path / "weights.safetensors"), naming="format None")


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("", "Expecting value"),
        ("{", "Expecting property name"),
        ("null", "NoneType"),
        ("[1, 2]", "list"),
        ("7", "int"),
        ("[" * 100_000, "recursion"),
        *((json.dumps({key: value for key, value in FACTS.items() if key != missing}), missing) for missing in FACTS),
        *(
            (json.dumps(FACTS | {key: value}), key)
            for key, value in (
                ("image_shape", [3, 9]),
                ("image_shape", [3, 0, 9]),
                ("image_shape", [3, -9, 9]),
                ("image_shape", [3, 9, 1 << 40]),
                ("image_shape", [3, 9.5, 9]),
                ("image_shape", [3, float("inf"), 9]),
                ("image_shape", [3, float("nan"), 9]),
                ("image_shape", "399"),
                ("num_examples", 0),
                ("num_examples", -1),
                ("num_examples", 1.5),
                ("num_examples", True),
                ("num_examples", "two"),
                ("num_examples", 1 << 30),
                ("mode", "test"),
                ("mode", ["eval"]),
                ("local_update", 3),
                ("defence", ["pruning"]),
            )
        ),
        (json.dumps(FACTS | {"image_shape": None}), "NoneType"),
        (json.dumps(FACTS | {"batch_norm": "perfect"}), "'perfect'"),
        (json.dumps(FACTS | {"batch_norm": ["exact"]}), "['exact']"),
    ],
)
def test_damaged_metadata_is_refused_by_name(text, culprit, recorded, tmp_path):
    write_tensors(tmp_path / "round", tensors_of(recorded), {"format": FORMAT, "round": text})
    refusal(InvalidFile, lambda: read_round(tmp_path / "round"), naming=culprit)


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    key=st.sampled_from(list(FACTS)),
    value=st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    ),
)
def test_any_value_of_the_metadata_is_read_or_refused_in_one_line(key, value, recorded, tmp_path):
    metadata = {"format": FORMAT, "round": json.dumps(FACTS | {key: value})}
    (tmp_path / "round").write_bytes(save({"labels": torch.tensor([1, 3])}, metadata))
    read_or_refuse_in_one_line(lambda: read_round(tmp_path / "round"))


@pytest.mark.parametrize(
    ("extra", "culprit"),
    [
        ({"truth.images": torch.rand(2, 3)}, "'truth.images'"),
        ({"images": torch.rand(2, 3)}, "'images'"),
        ({"labels.true": torch.rand(2)}, "'labels.true'"),
        ({"state": torch.rand(2)}, "'state'"),
        ({"batch_mean.norm": torch.rand(2)}, "'norm'"),
        ({"batch_variance.norm": torch.rand(2)}, "'norm'"),
    ],
)
def test_a_tensor_that_no_round_has_is_refused_by_name(extra, culprit, recorded, tmp_path):
    write_tensors(tmp_path / "round", tensors_of(recorded) | extra, {"format": FORMAT, "round": json.dumps(FACTS)})
    refusal(InvalidFile, lambda: read_round(tmp_path / "round"), naming=culprit)


# Rounds of a part of the model


class Adapted(nn.Module):
    """A frozen layer with a low-rank adapter beside it, by the names that adapters usually have [Hu et al., 2022]."""

    def __init__(self, base: nn.Conv2d | nn.Linear, rank: int = 2) -> None:
        super().__init__()
        self.base_layer = base.requires_grad_(False)
        if isinstance(base, nn.Conv2d):
            down: nn.Module = nn.Conv2d(base.in_channels, rank, base.kernel_size, base.stride, base.padding, bias=False)
            up: nn.Module = nn.Conv2d(rank, base.out_channels, 1, bias=False)
        else:
            down, up = nn.Linear(base.in_features, rank, bias=False), nn.Linear(rank, base.out_features, bias=False)
        self.lora_A, self.lora_B = nn.ModuleDict({"default": down}), nn.ModuleDict({"default": up})

    def forward(self, x: Tensor) -> Tensor:
        return self.base_layer(x) + self.lora_B["default"](self.lora_A["default"](x))


def adapted() -> nn.Module:
    torch.manual_seed(0)
    features = [Adapted(nn.Conv2d(3, 8, 3, padding=1)), nn.Tanh(), nn.Flatten(), Adapted(nn.Linear(648, 5))]
    return nn.Sequential(*features)


@pytest.mark.parametrize("steps", [1, 3])
def test_adapters_alone_are_what_was_sent(steps, examples):
    """A real loop of torch over the adapters; their names as they are saved, without that of the adapter."""
    module, batch = adapted().double(), examples(2, SHAPE, dtype=torch.float64)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    optimiser = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], 0.01)
    for _ in range(steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(module(batch.inputs), batch.labels).backward()
        optimiser.step()
    after = {name.replace(".default", ""): t.clone() for name, t in module.state_dict().items() if "lora" in name}
    recorded = RecordedRound.between(before, after, SHAPE, labels=batch.labels)
    client = fedavg(steps, 2, 0.01, optimiser="adam")
    seen = observe(recorded, adapted().double(), local_update=client)
    assert all("lora" in name for name in seen.state.params)
    expected = client.expected(seen.learner, seen.state, batch, observed=seen.update.params)
    assert expected.keys() == seen.update.params.keys()
    for name, tensor in seen.update.params.items():
        assert torch.allclose(expected[name], tensor, rtol=1e-6, atol=1e-9)
    found = best(steps=3)(seen, generator=seeded(0))
    assert found.inputs.shape == batch.inputs.shape


@pytest.mark.parametrize("declared", [False, True])
def test_a_tensor_that_the_update_lacks_was_not_trained_unless_it_is_said_to_stay_at_home(declared, recorded):
    partial = replace(recorded, update=without(recorded.update, "conv2.bias"))
    client = Sharing(without=("conv2.*",))(FedSGD()) if declared else FedSGD()
    seen = observe(partial, MODULE, local_update=client)
    assert ("conv2.bias" in seen.state.params) is declared
    assert ("conv2.bias" in seen.state.buffers) is not declared
    assert "conv2.bias" not in seen.update.params
    assert not_shared(partial, MODULE) == ("conv2.bias",)


# Rounds that do not fit the model


def without(tree: Any, name: str) -> dict[str, Tensor]:
    return {key: tensor for key, tensor in tree.items() if key != name}


def spoilt(tree: Any, name: str, value: float) -> dict[str, Tensor]:
    tensor = tree[name].clone()
    tensor.view(-1)[-1] = value
    return {**tree, name: tensor}


UNFIT = {
    "a parameter is missing from the state": (lambda r: {"state": without(r.state, "conv2.bias")}, "'conv2.bias'"),
    "a buffer is missing from the state": (lambda r: {"state": without(r.state, "normalise.std")}, "'normalise.std'"),
    "the update has a stranger": (lambda r: {"update": {**r.update, "conv9.bias": torch.ones(2)}}, "'conv9.bias'"),
    "the update is of another class count": (
        lambda r: {"update": {**r.update, "head.bias": torch.ones(7)}},
        "'head.bias' has shape (7,)",
    ),
    "the state is of another class count": (
        lambda r: {"state": {**r.state, "head.weight": torch.ones(7, 8)}},
        "'head.weight' has shape (7, 8)",
    ),
    "the update is empty": (lambda r: {"update": {}}, "'conv1.weight' and 7 more"),
    **{
        f"the update holds {value}": (lambda r, value=value: {"update": spoilt(r.update, "conv3.bias", value)}, "conv3")
        for value in (float("nan"), float("inf"), float("-inf"))
    },
    "a weight is NaN": (lambda r: {"state": spoilt(r.state, "conv3.bias", float("nan"))}, "weights hold NaN"),
    "a buffer is NaN": (lambda r: {"state": spoilt(r.state, "normalise.mean", float("nan"))}, "weights hold NaN"),
    "a label is beyond the classes": (lambda r: {"labels": torch.tensor([1, 5])}, "1 to 5"),
    "a label is negative": (lambda r: {"labels": torch.tensor([-1, 1])}, "-1 to 1"),
    "labels are not whole": (lambda r: {"labels": torch.tensor([1.0, 2.0])}, "torch.float32"),
    "labels are NaN": (lambda r: {"labels": torch.full((2, 5), float("nan"))}, "n x 5"),
    "labels are of another class count": (lambda r: {"labels": torch.rand(2, 7)}, "(2, 7)"),
    "labels are one number": (lambda r: {"labels": torch.tensor(1), "num_examples": None}, "shape ()"),
    "more labels than examples": (lambda r: {"labels": torch.tensor([1, 2, 3])}, "2 examples and 3 labels"),
    "fewer labels than examples": (lambda r: {"labels": torch.tensor([1])}, "2 examples and 1 labels"),
    "no labels at all": (lambda r: {"labels": torch.zeros(0).long(), "num_examples": None}, "0 examples"),
    "no example": (lambda r: {"num_examples": 0, "labels": None}, "0 examples"),
    "images of other channels": (lambda r: {"space": (4, 9, 9)}, "4 x 9 x 9"),
    "images of another size": (lambda r: {"space": (3, 20, 20)}, "3 x 20 x 20"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_a_round_that_does_not_fit_the_model_is_refused_by_name(name, recorded):
    change, culprit = UNFIT[name]
    bad = replace(recorded, **change(recorded))
    refusal((InvalidUpdate, InvalidCase), lambda: observe(bad, MODULE, local_update=FedSGD()), naming=culprit)


def test_a_model_of_other_sizes_is_refused_by_the_first_tensor_that_differs(recorded):
    for factory, classes in ((Compact(width=3), 5), (Compact(width=2), 6), (ConvNet(width=2), 5)):
        module = build(factory, SHAPE, classes, seed=0)
        refusal(InvalidUpdate, lambda module=module: observe(recorded, module, local_update=None), naming="'")


def test_a_round_may_leave_unknown_what_an_attacker_need_not_know(recorded):
    silent = replace(recorded, labels=None, num_examples=None, local_update=None, defence=None)
    seen = observe(silent, MODULE, local_update=None)
    assert (seen.labels, seen.num_examples, seen.local_update) == (None, None, None)
    counted = observe(replace(recorded, num_examples=None), MODULE, local_update=None)
    assert counted.num_examples == 2


def test_a_train_mode_round_is_attacked_in_the_mode_its_access_allows(attacked, examples):
    module = build(ConvNet(width=2), SHAPE, 5, seed=0)
    recorded = RecordedRound.of(attacked(module, examples(2, SHAPE)), local_update="fedsgd", defence=None)
    for access, mode in zip(BatchNormAccess, ("train", "eval", "train"), strict=True):
        round_ = replace(recorded, mode="train", batch_norm=BatchNormKnowledge(access))
        assert observe(round_, module, local_update=None).learner.mode == mode


# Writing


def test_a_failed_write_leaves_nothing_behind(recorded, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("leakgauge.files.save_file", full)
    refusal(InvalidFile, lambda: write_round(tmp_path / "round", recorded), naming="No space left on device")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_replacement_leaves_the_old_file_and_nothing_else(recorded, tmp_path, monkeypatch):
    write_round(tmp_path / "round", recorded)
    before = (tmp_path / "round").read_bytes()

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("leakgauge.files.os.replace", refuse)
    other = replace(recorded, num_examples=None)
    refusal(InvalidFile, lambda: write_round(tmp_path / "round", other), naming="Permission denied")
    assert [path.name for path in tmp_path.iterdir()] == ["round"]
    assert (tmp_path / "round").read_bytes() == before


def test_a_target_that_cannot_be_written_is_refused(recorded, tmp_path):
    refusal(InvalidFile, lambda: write_round(tmp_path / "no" / "round", recorded), naming="No such file")
    (tmp_path / "folder").mkdir()
    refusal(InvalidFile, lambda: write_round(tmp_path / "folder", recorded), naming="folder")
    (tmp_path / "file").touch()
    refusal(InvalidFile, lambda: writable_folder(tmp_path / "file"), naming="file")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


def test_an_error_in_the_middle_of_writing_passes_and_leaves_nothing(tmp_path):
    def fail() -> None:
        with atomic_path(tmp_path / "text") as temporary:
            temporary.write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []


def _write_interrupted(target: Path, lines: int) -> None:
    """Ctrl-C after so many lines of Python below :mod:`leakgauge.files`."""
    left = lines

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if event == "line" and Path(frame.f_code.co_filename).name != "files.py":
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        write_text(target, "whole")
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(outer)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # an open file is let go, as it must be
def test_an_interrupt_at_any_line_of_making_a_file_leaves_nothing(tmp_path):
    lines = 0
    while not (tmp_path / "text").exists():
        _write_interrupted(tmp_path / "text", lines)
        assert [path.name for path in tmp_path.iterdir()] in ([], ["text"])
        lines += 1
    assert lines > 10  # the creation of a file takes more lines of Python than this


def test_views_and_shared_storage_are_written_as_plain_tensors(tmp_path):
    base = torch.arange(6.0)
    write_tensors(tmp_path / "t", {"whole": base, "part": base[::2], "turned": base.view(2, 3).T})
    back = load_file(tmp_path / "t")
    assert torch.equal(back["part"], base[::2])
    assert torch.equal(back["turned"], base.view(2, 3).T)


def test_text_is_replaced_whole(tmp_path):
    write_text(tmp_path / "page", "first")
    write_text(tmp_path / "page", "größer")
    assert (tmp_path / "page").read_text(encoding="utf-8") == "größer"
    assert [path.name for path in tmp_path.iterdir()] == ["page"]
    assert (tmp_path / "page").stat().st_mode & 0o777 == 0o644


def test_a_writable_folder_is_made_with_its_parents(tmp_path):
    folder = writable_folder(tmp_path / "a" / "b")
    assert folder.is_dir()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("length", [0x0280, 0x0380, 0x0480])
def test_a_header_whose_length_reads_like_a_pickle_is_no_pickle(tmp_path, length):
    # The file begins with the length of its header: 0x480 is written 80 04, as is the start of a pickle.
    for padding in range(length):
        write_tensors(tmp_path / "file", {"x": torch.ones(1)}, {"note": "a" * padding})
        if (tmp_path / "file").read_bytes()[:2] == length.to_bytes(2, "little"):
            break
    assert (tmp_path / "file").read_bytes()[:2] == length.to_bytes(2, "little")
    assert torch.equal(read_tensors(tmp_path / "file")[0]["x"], torch.ones(1))


# Rounds as people record them


def step(module: nn.Module, batch: Batch, rate: float = 0.1) -> dict[str, Tensor]:
    """One step of training in place; the weights before it."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    cross_entropy(module(batch.inputs), batch.labels).backward()
    torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=rate).step()
    return before


@pytest.fixture
def trained() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Weights before and after a step."""
    module = build(Compact(width=2), SHAPE, 5, seed=0)
    return step(module, BATCH), module.state_dict()


def test_weights_that_were_not_cloned_are_refused_with_the_remedy(trained):
    before, after = trained
    for shared in (after, dict(after), before | {"head.bias": after["head.bias"]}):
        message = refusal(InvalidUpdate, lambda s=shared: RecordedRound.between(s, after, SHAPE), naming="share")
        assert "clone()" in message


REFUSED_DIFFERENCES = {
    "nothing moved": (lambda b, a: (b, {name: t.clone() for name, t in b.items()}), "zero in every entry"),
    "one number": (lambda b, a: ({n: t * 0 + 1 for n, t in b.items()}, {n: t * 0 for n, t in b.items()}), "is 1 in"),
    "diverged": (lambda b, a: (b, a | {"head.bias": torch.full((5,), torch.nan)}), "'head.bias'"),
    "whole numbers": (
        lambda b, a: ({n: t.int() for n, t in b.items()}, {n: t.int() for n, t in a.items()}),
        "no float",
    ),
    "one too many": (lambda b, a: (b, a | {"extra.bias": torch.ones(2)}), "'extra.bias'"),
}


@pytest.mark.parametrize("name", REFUSED_DIFFERENCES)
def test_a_difference_that_no_client_makes_is_refused(name, trained):
    change, culprit = REFUSED_DIFFERENCES[name]
    pair = change(*trained)
    refusal(InvalidUpdate, lambda: RecordedRound.between(*pair, SHAPE), naming=culprit)


@pytest.mark.parametrize(
    ("change", "culprit"),
    [
        (lambda t: t * 0, "not cloned"),
        (lambda t: t * 0 - 2.5, "-2.5 in every entry"),
        (lambda t: (1e3 * t).int(), "whole numbers (int32)"),
    ],
)
def test_an_update_that_no_client_sends_is_refused_before_any_attack(change, culprit, recorded):
    bad = replace(recorded, update={name: change(tensor) for name, tensor in recorded.update.items()})
    refusal(InvalidUpdate, lambda: observe(bad, MODULE, local_update=FedSGD()), naming=culprit)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "_module.", "module._orig_mod."])
def test_wrappers_around_a_model_leave_no_trace_in_what_is_observed(prefix, trained, bits):
    before, after = trained
    plain = observe(RecordedRound.between(before, after, SHAPE), MODULE, local_update=FedSGD())
    wrapped = [{prefix + name: tensor for name, tensor in weights.items()} for weights in trained]
    for pair in (wrapped, (before, wrapped[1]), (wrapped[0], after)):
        assert bits(observe(RecordedRound.between(*pair, SHAPE), MODULE, local_update=FedSGD())) == bits(plain)


def test_halves_are_subtracted_as_floats(trained):
    before, after = ({name: tensor.bfloat16() for name, tensor in weights.items()} for weights in trained)
    moved = RecordedRound.between(before, after, SHAPE).update["conv1.weight"]
    assert moved.dtype == torch.float32
    torch.testing.assert_close(moved, before["conv1.weight"].float() - after["conv1.weight"].float(), rtol=0, atol=0)


def test_what_did_not_move_is_taken_as_frozen(trained):
    before, after = trained
    kept = after | {name: before[name].clone() for name in before if name.startswith("conv1")}
    seen = observe(RecordedRound.between(before, kept, SHAPE), MODULE, local_update=FedAvg(1, 2, 0.1))
    assert "conv1.weight" in seen.state.buffers
    expected = seen.local_update.expected(seen.learner, seen.state, BATCH, observed=seen.update.params)
    assert set(expected) == set(seen.update.params) == {n for n in dict(MODULE.named_parameters()) if "conv1" not in n}
    for name, tensor in expected.items():
        torch.testing.assert_close(tensor, seen.update.params[name], rtol=1e-4, atol=1e-7)


# Running statistics that were sent along


@pytest.mark.parametrize("momentum", [0.1, 0.35, None])
def test_one_step_in_train_mode_discloses_the_exact_statistics_of_its_batch(momentum, examples):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0), examples(3, SHAPE)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = momentum
    module.train()(examples(4, SHAPE, seed=1).inputs)  # so that the running statistics are not those of a new model
    learner, state = learner_and_state(module, mode="train")
    truth = learner.batch_statistics(state, batch.inputs)
    recorded = RecordedRound.between(step(module, batch), module.state_dict(), SHAPE, num_examples=3)
    assert recorded.mode == "train"
    seen = observe(recorded, module, local_update=FedAvg(1, 3, 0.1))
    assert seen.batch_norm.access is BatchNormAccess.EXACT
    assert seen.learner.mode == "train"
    for part in ("mean", "variance"):
        for name, tensor in getattr(truth, part).items():
            torch.testing.assert_close(getattr(seen.batch_norm.statistics, part)[name], tensor, rtol=1e-5, atol=1e-6)


def test_statistics_of_several_steps_or_of_eval_mode_disclose_no_batch(examples):
    module, batch = build(ConvNet(width=2), SHAPE, 5, seed=0).train(), examples(3, SHAPE)
    before = step(module, batch)
    step(module, batch)
    twice = RecordedRound.between(before, module.state_dict(), SHAPE, num_examples=3)
    # Declared as one step: the counters know better.
    assert observe(twice, module, local_update=FedAvg(1, 3, 0.1)).batch_norm.statistics is None
    resting = RecordedRound.between(step(module.eval(), batch), module.state_dict(), SHAPE, num_examples=3)
    assert resting.mode == "eval"
    assert observe(resting, module, local_update=FedAvg(1, 3, 0.1)).batch_norm.statistics is None
    refusal(InvalidUpdate, lambda: observe(replace(twice, mode="eval"), module, local_update=None), naming="train")
