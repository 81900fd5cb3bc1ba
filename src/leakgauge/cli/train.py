"""``leakgauge train`` and ``leakgauge train-generator``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from leakgauge.cli.options import JsonFlag, LossOption, ModelOption, NormaliseOption, OutOption, SeedOption, options_for
from leakgauge.cli.output import exit_early, print_json, print_path, stderr, stdout


def train(
    dataset: Annotated[str | None, typer.Option(help="photos, digits, cifar10, npz:file='x.npz', ...")] = None,
    data_root: Annotated[str | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    model: ModelOption = None,
    normalise: NormaliseOption = None,
    loss: LossOption = None,
    state: Annotated[str | None, typer.Option(help="First weights of the model, as .safetensors.")] = None,
    defence: Annotated[str | None, typer.Option(help="What every update passes through; join with +.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="short (seconds), or huang2021 (200 epochs, as published).")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps, instead of the recipe's.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs, instead of the recipe's.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Images per step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Learning rate at the start.")] = None,
    schedule: Annotated[str | None, typer.Option(help="constant, step:every=0.25,by=0.1 or cosine.")] = None,
    seed: SeedOption = None,
    out: Annotated[Path, typer.Option("--out", help="Folder for checkpoints and the trained weights.")] = Path(
        "trained"
    ),
    as_json: JsonFlag = False,
) -> None:
    """Train a model under a defence: its accuracy, and the time that the defence costs.

    Stopped, the same command goes on where it was. `model.safetensors` is what `audit --state` reads.
    """
    options = locals()
    from leakgauge.audit.store import check_reachable
    from leakgauge.files import write_tensors, write_text
    from leakgauge.report.progress import training_progress
    from leakgauge.training.run import TrainingPlan, prepare_training, run_training

    plan = TrainingPlan(**options_for(TrainingPlan, options))
    check_reachable(out)
    with training_progress(stderr()) as progress:
        prepared = prepare_training(plan)
        try:
            trained = run_training(prepared, out, progress)
        except KeyboardInterrupt:
            exit_early()
    write_tensors(out / "model.safetensors", trained.weights())
    row = trained.to_dict()
    write_text(out / "training.json", json.dumps({"seed": plan.seed, **row}, indent=2, allow_nan=False) + "\n")
    if as_json:
        print_json("train", plan.seed, [row])
        return
    from leakgauge.report.tradeoff_words import utility

    stdout().print(f"[bold]{escape(utility(trained))}[/]", soft_wrap=True)
    print_path("Weights", out / "model.safetensors")


def train_generator(
    dataset: Annotated[str, typer.Option(help="Public images: photos, cifar10, image_folder, ...")] = "photos",
    data_root: Annotated[Path | None, typer.Option(help="Folder that holds the dataset's files.")] = None,
    width: Annotated[int, typer.Option(help="Channels at the largest size.")] = 32,
    latent: Annotated[int, typer.Option(help="Length of the latents.")] = 64,
    steps: Annotated[int, typer.Option(help="Steps of either network.")] = 2_000,
    batch_size: Annotated[int, typer.Option(help="Images per step.")] = 64,
    learning_rate: Annotated[float, typer.Option(help="Learning rate.")] = 2e-4,
    seed: SeedOption = None,
    out: OutOption = Path("generator"),
    as_json: JsonFlag = False,
) -> None:
    """Train a small generator on the training images of a dataset, for the attacks gias and gifd.

    Stopped, the same command goes on where it was.
    """
    from leakgauge.config import build_dataset
    from leakgauge.generative import DCGAN, GeneratorTraining, GeneratorTrainingPlan
    from leakgauge.generative import train_generator as run
    from leakgauge.report.progress import training_progress

    plan = GeneratorTrainingPlan(steps, batch_size, learning_rate, seed or 0)
    with training_progress(stderr()) as progress:
        data = build_dataset(dataset, data_root)
        training = GeneratorTraining(data.train.inputs, DCGAN(data.space.shape, width, latent), plan)
        try:
            file = run(training, out, progress, {"dataset": data.name})
        except KeyboardInterrupt:
            exit_early()
    if as_json:
        print_json("train-generator", plan.seed, [{"dataset": data.name, "steps": steps}], file=str(file.resolve()))
        return
    print_path("Generator", file)
