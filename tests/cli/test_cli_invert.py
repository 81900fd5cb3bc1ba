from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from cli_support import *  # noqa: F403
from cli_support import Command
from PIL import Image
from torch import Tensor

from leakgauge import RecordedRound, write_round
from leakgauge.factories import import_factory
from leakgauge.files import read_tensors, write_tensors
from leakgauge.types import Batch

EXACT = ("--attack", "linear_layer")


@pytest.fixture
def file(recorded: RecordedRound) -> Path:
    write_round(Path("round.safetensors"), recorded)
    return Path("round.safetensors")


@pytest.fixture
def truth_file(truth: Batch) -> Path:
    np.savez("truth.npz", images=truth.inputs.numpy(), labels=truth.labels.numpy())
    return Path("truth.npz")


def test_a_recorded_round_of_an_mlp_gives_back_its_image_as_a_file(
    command: Command, file: Path, mlp: str, truth: Batch
) -> None:
    answer = command("invert", file, "--model", mlp, *EXACT, "--no-redact", "--out", "out", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.payload["command"] == "invert"
    (row,) = answer.rows
    assert (row["defence"], row["attack"], row["batch_size"]) == ("as recorded", "linear_layer", 1)
    assert (row["verdict"], row["outcome"], row["metrics"]) == ("not judged", "solved", {})
    assert {fact["name"]: fact["disclosed"] for fact in row["assumptions"]}["labels"] is True
    assert answer.payload["recovered"] == "out/recovered"
    kept = ["audit.sqlite", "driver.sqlite", "index.html", "recovered", "tensors"]
    assert sorted(path.name for path in Path("out").iterdir()) == kept
    with Image.open("out/recovered/image_000.png") as image:
        pixels = np.asarray(image)
    assert np.array_equal(pixels, (truth.inputs[0, 0] * 255).round().byte().numpy())


def test_a_redacted_round_leaves_nothing_to_look_at_beside_its_page(command: Command, file: Path, mlp: str) -> None:
    words = ("invert", file, "--model", mlp, *EXACT, "--out", "out")
    answer = command(*words)
    assert "--no-redact" in answer.out
    assert not Path("out/recovered").exists()
    # Shown and hidden again, by either command, whatever the run was asked for.
    for shown, again in ((True, words), (False, words), (True, ("report", "out")), (False, ("report", "out"))):
        answer = command(*again, "--no-redact" if shown else "--redact", "--json")
        assert answer.payload["recovered"] == ("out/recovered" if shown else None)
        assert [path.name for path in Path("out").glob("recovered/*")] == (["image_000.png"] if shown else [])
        assert ("holds no private input" in Path("out/index.html").read_text("utf-8")) is not shown


def test_nothing_is_written_or_removed_through_a_link_that_leads_out_of_the_folder(
    command: Command, file: Path, mlp: str
) -> None:
    words = ("invert", file, "--model", mlp, *EXACT, "--out", "out")
    command(*words)
    Path("elsewhere").mkdir()
    Path("elsewhere/texts.txt").write_text("mine")
    Path("out/recovered").symlink_to(Path("elsewhere").resolve())
    for again in (words, ("report", "out", "--no-redact"), ("report", "out", "--redact")):
        command(*again).refused("recovered is a link")
    assert [path.name for path in Path("elsewhere").iterdir()] == ["texts.txt"]


def test_a_file_of_somebody_else_survives_redaction(command: Command, file: Path, mlp: str) -> None:
    Path("out/recovered").mkdir(parents=True)
    Path("out/recovered/notes.md").write_text("mine")
    Path("out/rows.csv").write_text("mine as well")
    command("invert", file, "--model", mlp, *EXACT, "--out", "out", "--json")
    assert (Path("out/recovered/notes.md").read_text(), Path("out/rows.csv").read_text()) == ("mine", "mine as well")


def test_with_the_truth_the_recovery_is_scored_beside_its_null(
    command: Command, file: Path, truth_file: Path, mlp: str
) -> None:
    answer = command("invert", file, "--model", mlp, *EXACT, "--truth", truth_file, "--out", "out", "--json")
    (row,) = answer.rows
    assert row["metrics"]["psnr"]["mean"] > 100
    assert row["metrics"]["psnr"]["null"]["count"] == 3
    assert row["metrics"]["psnr"]["null"]["mean"] < 30
    assert row["metrics"]["identification"]["mean"] == 1.0
    assert row["metrics"]["identification"]["null"]["mean"] == 0.0
    assert row["metrics"]["label_recall"]["mean"] == 1.0
    assert row["verdict"] == "leaks"


def test_a_round_that_lacks_what_stayed_at_home_is_attacked_through_the_rest(
    command: Command, recorded: RecordedRound, truth_file: Path, mlp: str
) -> None:
    partial = replace(recorded, update={name: t for name, t in recorded.update.items() if name.startswith("1.")})
    write_round(Path("round.safetensors"), partial)
    words = ("invert", "round.safetensors", "--model", mlp, *EXACT, "--truth", truth_file, "--out", "out", "--json")
    (row,) = command(*words).rows
    assert row["metrics"]["psnr"]["mean"] > 100
    assert row["verdict"] == "leaks"
    told = {fact["name"]: fact["detail"] for fact in row["assumptions"]}["update"]
    assert told == "in part: without '3.weight' and 1 more, taken as not trained"


def test_private_images_are_told_from_references(command: Command, file: Path, truth_file: Path, mlp: str) -> None:
    words = ("invert", file, "--model", mlp, *EXACT, "--truth", truth_file, "--out", "out", "--nulls", "1")
    (row,) = command(*words, "--references", "digits", "--json").rows
    assert row["verdict"] == "leaks"
    assert row["metrics"]["psnr"]["null"]["count"] == 1
    command(*words, "--references", "photos:size=9").refused("References are one or more images")
    command(*words[:-6], "--references", "digits").refused("--truth")


@pytest.mark.parametrize(("limit", "code"), [("psnr=100", 1), ("psnr=250", 0)])
def test_an_inversion_can_be_gated_if_the_truth_is_there(
    command: Command, file: Path, truth_file: Path, mlp: str, limit: str, code: int
) -> None:
    words = ("invert", file, "--model", mlp, *EXACT, "--out", "out", "--fail-above", limit)
    command(*words).refused("psnr", "--truth")
    assert not Path("out").exists()
    assert command(*words, "--truth", truth_file).code == code


def test_the_strongest_attack_is_the_default(command: Command, file: Path, truth_file: Path, mlp: str) -> None:
    words = ("invert", file, "--model", mlp, "--truth", truth_file, "--nulls", "1", "--json", "--out", "out")
    (row,) = command(*words).rows
    assert row["attack"] == "best:steps=600"
    assert row["verdict"] == "leaks, certified exact"


def test_an_iterative_attack_repeats_itself(command: Command, file: Path, truth_file: Path, mlp: str) -> None:
    words = ("invert", file, "--model", mlp, "--attack", "quasi_newton", "--steps", "3", "--truth", truth_file)
    words += ("--nulls", "1", "--json")
    one, two = (command(*words, "--out", name) for name in ("one", "two"))
    other = command(*words, "--out", "three", "--seed", "1")
    assert one.rows == two.rows
    assert one.rows != other.rows
    assert other.payload["seed"] == 1


def test_a_round_without_the_algorithm_is_scored_without_a_null(
    command: Command, recorded: RecordedRound, truth_file: Path, mlp: str
) -> None:
    write_round(Path("round.safetensors"), replace(recorded, local_update=None, defence=None))
    answer = command(
        *("invert", "round.safetensors", "--model", mlp, *EXACT, "--truth", truth_file, "--out", "out", "--json")
    )
    (row,) = answer.rows
    assert row["metrics"]["psnr"]["mean"] > 100
    assert row["metrics"]["psnr"]["null"] == {"mean": None, "interval": [None, None], "count": 0}


def test_a_round_of_unknown_size_is_a_recorded_outcome(command: Command, recorded: RecordedRound, mlp: str) -> None:
    write_round(Path("round.safetensors"), replace(recorded, num_examples=None, labels=None))
    answer = command("invert", "round.safetensors", "--model", mlp, *EXACT, "--out", "out", "--json")
    assert answer.code == 0
    (row,) = answer.rows
    assert (row["outcome"], row["batch_size"]) == ("missing_knowledge", None)
    assert "num_examples" in row["reason"]
    assert not list(Path("out").glob("*.png"))


def test_another_model_with_the_same_weights_is_not_taken_for_the_first(
    command: Command, file: Path, mlp: str, module: Callable[[str], str]
) -> None:
    source = Path(f"{mlp.partition(':')[0]}.py").read_text()
    smooth = f"{module(source.replace('ReLU', 'Sigmoid'))}:build"
    words = ("--steps", "3", "--no-explain", "--out", "out", "--json")
    first = command("invert", file, "--model", mlp, *words)
    second = command("invert", file, "--model", smooth, *words)
    assert first.rows[0]["facts"] != second.rows[0]["facts"]


def test_finished_inversions_are_not_run_again(
    command: Command, file: Path, truth_file: Path, mlp: str, count_runs: list[str]
) -> None:
    words = ("invert", file, "--model", mlp, *EXACT, "--truth", truth_file, "--out", "out", "--json")
    assert command(*words).rows == command(*words).rows
    assert count_runs == ["as recorded linear_layer real", *["as recorded linear_layer null"] * 3]


class Bomb:
    """Unpickled, it leaves a mark."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (Path("exploded"),)


@pytest.fixture
def refuses(command: Command, mlp: str) -> Callable[..., None]:
    """Inverting ends with one sentence that holds these words, and leaves no folder behind."""

    def check(*words: str, file: str | Path = "round.safetensors", model: str | None = None, options: Any = ()) -> None:
        command("invert", file, "--model", model or mlp, *EXACT, *options, "--out", "out").refused(*words)
        assert not Path("out").exists()

    return check


def test_a_file_that_is_no_round_is_refused_and_never_unpickled(refuses: Callable[..., None], file: Path) -> None:
    refuses("missing.safetensors", "No such file", file="missing.safetensors")
    refuses("it is a folder, not a file", file=".")
    whole = file.read_bytes()
    damaged = {"empty": b"", "random": np.random.default_rng(0).bytes(4096), "text": b"hello" * 100}
    damaged |= {f"first {size} bytes": whole[:size] for size in (1, 8, 100, len(whole) // 2, len(whole) - 1)}
    damaged["longer"] = whole + b"x"
    for name, content in damaged.items():
        Path(name).write_bytes(content)
        refuses(name, "not a readable safetensors file", file=name)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        Path("pickled").write_bytes(pickle.dumps(Bomb(), protocol))
        refuses("pickled", file="pickled")
    torch.save({"x": Bomb()}, "saved.pt")
    refuses("saved.pt", "never reads it", "safetensors", file="saved.pt")
    assert not Path("exploded").exists()


def test_a_safetensors_file_that_is_no_round_is_refused(refuses: Callable[..., None], file: Path) -> None:
    tensors, metadata = read_tensors(file)
    write_tensors(Path("weights"), {"x": torch.zeros(1)})
    refuses("weights", "not a recorded round", "write_round", file="weights")
    write_tensors(Path("future"), tensors, metadata | {"format": "leakgauge-round/99"})
    refuses("leakgauge-round/99", file="future")
    write_tensors(Path("extra"), tensors | {"gradient.x": torch.zeros(1)}, metadata)
    refuses("'gradient.x'", file="extra")
    facts = json.loads(metadata["round"])
    for damage in (
        "",
        "[]",
        "{",
        json.dumps(facts | {"image_shape": [8, 8]}),
        json.dumps(facts | {"image_shape": [0, 8, 8]}),
        json.dumps(facts | {"num_examples": 0}),
        json.dumps(facts | {"num_examples": "one"}),
        json.dumps(facts | {"mode": "sleep"}),
        json.dumps(facts | {"batch_norm": "none"}),
        json.dumps(facts | {"local_update": 3}),
        json.dumps({name: value for name, value in facts.items() if name != "mode"}),
    ):
        write_tensors(Path("facts"), tensors, metadata | {"round": damage})
        refuses("metadata", "damaged", file="facts")
    write_tensors(Path("words"), tensors, metadata | {"round": json.dumps(facts | {"local_update": "fedprox"})})
    refuses("no local update 'fedprox'", file="words")
    write_tensors(Path("words"), tensors, metadata | {"round": json.dumps(facts | {"defence": "prunning"})})
    refuses("did you mean 'pruning'", file="words")


def without(tensors: Any, name: str) -> dict[str, Tensor]:
    return {key: value for key, value in tensors.items() if key != name}


BAD_ROUNDS: dict[str, tuple[Callable[[RecordedRound], RecordedRound], tuple[str, ...]]] = {
    "NaN in the update": (
        lambda r: replace(r, update={**r.update, "1.bias": torch.full((8,), torch.nan)}),
        ("NaN or infinite", "'1.bias'"),
    ),
    "infinity in the update": (
        lambda r: replace(r, update={**r.update, "1.bias": torch.full((8,), torch.inf)}),
        ("NaN or infinite", "'1.bias'"),
    ),
    "NaN in the weights": (
        lambda r: replace(r, state={**r.state, "1.bias": torch.full((8,), torch.nan)}),
        ("weights", "NaN or infinite"),
    ),
    "a tensor missing in the state": (
        lambda r: replace(r, state=without(r.state, "3.weight")),
        ("The state lacks '3.weight'",),
    ),
    "no update at all": (lambda r: replace(r, update={}), ("The update lacks '1.weight' and 3 more",)),
    "a tensor too many": (
        lambda r: replace(r, update={**r.update, "5.weight": torch.zeros(1)}),
        ("'5.weight'", "does not have"),
    ),
    "a wrong shape in the update": (
        lambda r: replace(r, update={**r.update, "1.weight": torch.zeros(8, 63)}),
        ("'1.weight'", "(8, 63)", "(8, 64)"),
    ),
    "a wrong shape in the state": (
        lambda r: replace(r, state={**r.state, "1.bias": torch.zeros(9)}),
        ("'1.bias'", "(9,)", "(8,)"),
    ),
    "images of another size": (lambda r: replace(r, space=(1, 9, 9)), ("cannot take images of 1 x 9 x 9",)),
    "a label too large": (lambda r: replace(r, labels=torch.tensor([10])), ("10 classes",)),
    "a negative label": (lambda r: replace(r, labels=torch.tensor([-1])), ("10 classes",)),
    "more labels than examples": (lambda r: replace(r, labels=torch.tensor([1, 2])), ("1 examples and 2 labels",)),
}


@pytest.mark.parametrize("name", BAD_ROUNDS)
def test_a_round_that_does_not_fit_the_model_is_refused(
    refuses: Callable[..., None], recorded: RecordedRound, name: str
) -> None:
    damage, words = BAD_ROUNDS[name]
    write_round(Path("round.safetensors"), damage(recorded))
    refuses(*words)


MODELS = {
    "another number of classes": ("nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 7))", "'3."),
    "another width": ("nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.ReLU(), nn.Linear(9, 10))", "'1."),
    "fewer layers": (
        "nn.Sequential(nn.Flatten(), nn.Linear(64, 8))",
        "and 1 more, which the model does not have",
    ),
    "more layers": (
        "nn.Sequential(nn.Flatten(), nn.Linear(64, 8), nn.ReLU(), nn.Linear(8, 10), nn.Linear(10, 10))",
        "lacks '4.weight' and 1 more",
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_the_round_does_not_belong_to_is_refused(
    refuses: Callable[..., None], module: Callable[[str], str], file: Path, name: str
) -> None:
    expression, words = MODELS[name]
    source = f"from torch import nn\n\n\ndef build():\n    return {expression}\n"
    refuses(words, model=f"{module(source)}:build")


def test_a_model_that_names_no_factory_is_refused(refuses: Callable[..., None], file: Path) -> None:
    refuses("the model has", model="mlp")  # another than the update is of
    refuses("package.module:factory", model="mine")
    refuses("cannot be imported", model="nowhere_at_all:build")


def test_a_truth_of_another_update_is_refused(refuses: Callable[..., None], file: Path, truth: Batch) -> None:
    pixels, labels = truth.inputs.numpy(), truth.labels.numpy()
    bad: dict[str, tuple[dict[str, Any], str]] = {
        "wide.npz": ({"images": np.zeros((1, 9, 9), np.uint8), "labels": labels}, "(1, 9, 9)"),
        "colour.npz": ({"images": np.zeros((1, 8, 8, 3), np.uint8), "labels": labels}, "(3, 8, 8)"),
        "two.npz": ({"images": np.concatenate((pixels, pixels)), "labels": np.array([3, 3])}, "covers 1"),
        "unlabelled.npz": ({"images": pixels}, "no array 'labels'"),
        "nameless.npz": ({"pictures": pixels}, "no array 'images'"),
        "bright.npz": ({"images": pixels * 3, "labels": labels}, "[0, 1]"),
        "classes.npz": ({"images": pixels, "labels": np.array([10])}, "10 classes"),
        "many.npz": ({"images": pixels, "labels": np.array([1, 2])}, "1 images"),
        "object.npz": ({"images": np.array([Bomb()], dtype=object)}, "never unpickled"),
    }
    for name, (arrays, words) in bad.items():
        np.savez(name, **arrays)
        refuses(words, options=("--truth", name))
    refuses("no file missing.npz", options=("--truth", "missing.npz"))
    np.save("single.npy", pixels)
    refuses("single.npy", "numpy.savez", options=("--truth", "single.npy"))
    assert not Path("exploded").exists()


def test_other_bad_options_are_refused(refuses: Callable[..., None], file: Path) -> None:
    refuses("no attack 'linear'", options=("--attack", "linear"))
    refuses("steps >= 1", options=("--attack", "quasi_newton", "--steps", "0"))
    refuses("LPIPS", "alexnet_features", options=("--weights", "."))


def test_an_unwritable_folder_is_refused(command: Command, file: Path, mlp: str) -> None:
    Path("in_the_way").touch()
    command("invert", file, "--model", mlp, "--out", "in_the_way/out").refused("in_the_way", "--out")


def test_a_model_with_arguments_another_loss_and_a_normalisation_of_its_own(
    command: Command, module: Callable[[str], str]
) -> None:
    """The client's loader normalised, its model has one score: recorded by its own names, read behind `Normalised`."""
    source = """
from torch import nn
def net(hidden, seed=0):
    import torch
    torch.manual_seed(seed)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, hidden), nn.Sigmoid(), nn.Linear(hidden, 1))
"""
    name = module(source)
    net = import_factory(f"{name}:net:hidden=5,seed=3")
    image = torch.rand(1, 1, 4, 4)
    score = net((image - 0.1307) / 0.3081)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(score, torch.ones(1, 1))
    gradient = dict(zip(dict(net.named_parameters()), torch.autograd.grad(loss, list(net.parameters()))))
    recorded = RecordedRound(state=net.state_dict(), update=gradient, space=(1, 4, 4), num_examples=1)
    write_round(Path("round.safetensors"), recorded)
    np.savez("truth.npz", images=image.numpy(), labels=np.ones(1, dtype=np.int64))
    words = ("round.safetensors", "--model", f"{name}:net:hidden=5,seed=3", "--loss", "bce", "--normalise", "mnist")
    answer = command("invert", *words, *EXACT, "--truth", "truth.npz", "--out", "out", "--json")
    assert (answer.code, answer.err) == (0, "")
    assert answer.rows[0]["metrics"]["psnr"]["mean"] > 80
    assert answer.rows[0]["metrics"]["label_recall"]["mean"] == 1.0
    command("invert", *words, *EXACT, "--normalise", "imagnet", "--out", "other").refused("imagenet")
    command("invert", *words, *EXACT, "--loss", "entropy", "--out", "other").refused("entropy")
    command("invert", *words[:2], f"{name}:net", "--out", "other").refused("hidden")
