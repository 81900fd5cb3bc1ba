"""Training a generator on public images, so that it outlives its process."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from leakgauge.checkpoints import CHECKPOINT_EVERY, Resumable, run_kept
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.generative.dcgan import DCGAN, write_generator
from leakgauge.progress import Progress, silent
from leakgauge.randomness import seeded
from leakgauge.threads import model_threads

_BETAS = (0.5, 0.999)


@dataclass(frozen=True)
class GeneratorTrainingPlan:
    """So many steps of Adam(0.5, 0.999) for either network; batches and latents are functions of seed and step."""

    steps: int = 2_000
    batch_size: int = 64
    learning_rate: float = 2e-4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.steps < 1 or self.batch_size < 2 or not 0 < self.learning_rate < float("inf"):
            raise InvalidCase(
                f"A generator needs at least one step, two images per batch and a finite learning rate above 0, got "
                f"{self.steps}, {self.batch_size} and {self.learning_rate}; correct them."
            )


class GeneratorTraining(Resumable):
    """The non-saturating game of Goodfellow et al. [2014]: the discriminator lowers
    softplus(-D(x)) + softplus(D(G(z))), the generator softplus(-D(G(z))), in turn."""

    def __init__(self, images: Tensor, network: DCGAN, plan: GeneratorTrainingPlan) -> None:
        if len(images) < 2:
            raise InvalidCase("A generator is trained on images, and there are none; add the training files.")
        if tuple(images.shape[1:]) != network.image_shape:
            raise InvalidCase(
                f"The network makes images {network.image_shape}, the data has {tuple(images.shape[1:])}; match them."
            )
        self.images, self.network, self.plan = images, network, plan
        self.generator = network.generator(seed=plan.seed).train()
        self.discriminator = network.discriminator(seed=plan.seed).train()
        self._adams = {
            name: torch.optim.Adam(module.parameters(), plan.learning_rate, _BETAS)
            for name, module in self._modules().items()
        }
        self._done = 0

    @property
    def steps(self) -> int:
        return self.plan.steps

    @property
    def done(self) -> int:
        return self._done

    def step(self) -> None:
        stream = seeded(self.plan.seed, "generator step", self.done)
        size = min(self.plan.batch_size, len(self.images))
        chosen = torch.randperm(len(self.images), generator=stream)[:size]
        made = self.generator(torch.randn(size, self.network.latent, generator=stream))
        verdicts = softplus(-self.discriminator(self.images[chosen])) + softplus(self.discriminator(made.detach()))
        self._lower("discriminator", verdicts.mean())
        self._lower("generator", softplus(-self.discriminator(made)).mean())
        self._done += 1

    def _lower(self, name: str, loss: Tensor) -> None:
        adam = self._adams[name]
        adam.zero_grad()
        loss.backward()
        adam.step()

    def _modules(self) -> dict[str, nn.Module]:
        return {"generator": self.generator, "discriminator": self.discriminator}

    def snapshot(self) -> dict[str, Tensor]:
        kept = {"done": torch.tensor(self.done)}
        for name, module in self._modules().items():
            kept |= {f"{name}.{key}": tensor for key, tensor in module.state_dict().items()}
            for index, moments in self._adams[name].state_dict()["state"].items():
                kept |= {f"{name}.adam.{index}.{key}": torch.as_tensor(tensor) for key, tensor in moments.items()}
        return kept

    def restore(self, snapshot: Mapping[str, Tensor]) -> None:
        try:
            for name, module in self._modules().items():
                module.load_state_dict({key: snapshot[f"{name}.{key}"] for key in module.state_dict()})
                adam = self._adams[name]
                state: dict[int, dict[str, Tensor]] = {}
                for key, tensor in snapshot.items():
                    if key.startswith(f"{name}.adam."):
                        index, _, part = key.removeprefix(f"{name}.adam.").partition(".")
                        state.setdefault(int(index), {})[part] = tensor
                adam.load_state_dict({**adam.state_dict(), "state": state})
            self._done = int(snapshot["done"])
        except (KeyError, RuntimeError, ValueError) as error:
            raise InvalidFile("The checkpoint is of another training; delete it or choose another folder.") from error

    @property
    def description(self) -> dict[str, str]:
        """What decides the result, for the files it is kept in."""
        content = hashlib.sha256(self.images.contiguous().numpy().data).hexdigest()[:16]
        return {"network": repr(self.network), "training": repr(self.plan), "images": content}


def train_generator(
    training: GeneratorTraining,
    folder: Path,
    progress: Progress = silent,
    described: Mapping[str, str] | None = None,
    checkpoint_every: float = CHECKPOINT_EVERY,
) -> Path:
    """Train to the end, from the checkpoint in ``folder`` if there is one; Ctrl-C keeps what was done, and passes.

    The file that is returned holds the finished generator.
    """
    words = training.description
    with model_threads(training.generator):
        run_kept(training, folder / "generator-checkpoint.safetensors", words, progress, checkpoint_every)
    target = folder / "generator.safetensors"
    write_generator(target, training.network, training.generator, {**(described or {}), **words})
    return target
