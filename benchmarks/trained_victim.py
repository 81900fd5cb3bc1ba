"""Train a network on CIFAR-10 until it is trained, and keep it on the way there.

    python benchmarks/trained_victim.py --data-root DIR --out FOLDER

Victims of trained networks want weights that were trained, not started. SGD with Nesterov momentum, one cycle of the
rate [Smith & Topin, 2018], mirrored and displaced images, all training images that the folder holds. ``FOLDER`` gets
the weights after each of the given epochs, as .safetensors that `--state` reads, and ``training.json`` with their
accuracy on the test images. Stopped, the same command begins again.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Generator, Tensor, nn
from torch.nn import functional

from leakgauge.catalogue import MODELS
from leakgauge.config import build as build_part
from leakgauge.config import build_dataset
from leakgauge.files import write_text
from leakgauge.models import build
from leakgauge.randomness import seeded
from leakgauge.training.train import accuracy
from leakgauge.types import Batch

PADDING = 4
SEED = 0


def augment(images: Tensor, generator: Generator) -> Tensor:
    """Each image displaced by up to four pixels, and mirrored or not."""
    size = images.shape[-1]
    padded = functional.pad(images, (PADDING,) * 4, mode="reflect")
    top, left = torch.randint(2 * PADDING + 1, (2, len(images)), generator=generator)
    mirrored = torch.rand(len(images), generator=generator) < 0.5
    places = torch.arange(size)
    columns = torch.where(mirrored[:, None], size - 1 - places, places) + left[:, None]
    rows = places + top[:, None]
    batch = torch.arange(len(images))[:, None, None]
    return padded.permute(0, 2, 3, 1)[batch, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def train_epochs(
    module: nn.Module, data: Batch, epochs: int, *, batch_size: int, rate: float, keep: Sequence[int]
) -> Iterator[tuple[int, nn.Module]]:
    """The module, in eval mode, after each of the epochs to keep."""
    generator = seeded(SEED, "training")
    optimiser = torch.optim.SGD(module.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = len(data) // batch_size
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimiser, max_lr=rate, total_steps=epochs * steps, pct_start=0.25, anneal_strategy="linear"
    )
    for epoch in range(1, epochs + 1):
        module.train()
        started, losses = time.process_time(), []
        for chosen in torch.randperm(len(data), generator=generator)[: steps * batch_size].view(steps, batch_size):
            optimiser.zero_grad()
            scores = module(augment(data.inputs[chosen], generator))
            loss = functional.cross_entropy(scores, data.labels[chosen], label_smoothing=0.1)
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
        mean = sum(losses) / len(losses)
        print(f"epoch {epoch}: loss {mean:.3f}, {time.process_time() - started:.0f} CPU s", flush=True)
        if epoch in keep:
            yield epoch, module.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="resnet:depth=18,base_width=32")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--keep", type=int, nargs="+", default=[1, 3, 6, 12])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    dataset = build_dataset("cifar10", options.data_root)
    module = build(build_part(MODELS, options.model, kind="model"), dataset.space.shape, dataset.num_classes, seed=SEED)
    rows = []
    options.out.mkdir(parents=True, exist_ok=True)
    trained = train_epochs(
        module, dataset.train[:], options.epochs, batch_size=options.batch_size, rate=options.rate, keep=options.keep
    )
    for epoch, at in trained:
        share = accuracy(at, dataset.test[:])
        rows.append({"epoch": epoch, "accuracy": share})
        print(f"epoch {epoch}: accuracy {share:.4f}", flush=True)
        state = {name: tensor.contiguous() for name, tensor in at.state_dict().items()}
        save_file(state, options.out / f"epoch{epoch}.safetensors")
        text = json.dumps({"model": options.model, "epochs": options.epochs, "rows": rows}, indent=1)
        write_text(options.out / "training.json", text + "\n")


if __name__ == "__main__":
    main()
