"""``leakgauge train-generator``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from leakgauge.cli.options import JsonFlag, OutOption, SeedOption
from leakgauge.cli.output import escaped, exit_early, print_json, stderr


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
    Console().print(f"Generator: [bold]{escaped(str(file.resolve()))}[/]", soft_wrap=True)
