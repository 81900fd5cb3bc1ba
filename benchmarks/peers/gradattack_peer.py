"""GradAttack [Huang et al., 2021], https://github.com/Princeton-SysML/GradAttack, MIT licence."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from peers.base import Peer, Target


@dataclass(frozen=True)
class GradAttack(Peer):
    """Its reconstructor as its own example runs it, under pytorch-lightning.

    It asks for the images, for their shape and to log how near it is; it gets grey ones.
    """

    @property
    def package(self) -> str:
        return "gradattack"

    def attack(self, target: Target, steps: int) -> Tensor:
        import pytorch_lightning as lightning  # type: ignore[import-not-found]
        from gradattack.attacks.gradientinversion import GradientReconstructor  # type: ignore[import-not-found]
        from gradattack.models import LightningWrapper  # type: ignore[import-not-found]
        from pytorch_lightning.loggers import TensorBoardLogger  # type: ignore[import-not-found]

        wrapped = LightningWrapper(target.module, training_loss_metric=cross_entropy)
        program = GradientReconstructor(
            SimpleNamespace(model=wrapped),
            ground_truth_inputs=torch.zeros(len(target.labels), *target.shape),
            ground_truth_gradients=target.gradient,
            ground_truth_labels=target.labels,
            mean_std=(target.mean, target.std),
            num_iterations=steps,
        )
        with tempfile.TemporaryDirectory() as folder:
            trainer = lightning.Trainer(
                accelerator="cpu",
                max_epochs=1,
                logger=TensorBoardLogger(folder),
                enable_checkpointing=False,
                enable_progress_bar=False,
            )
            trainer.fit(program)
        return target.pixels(program.best_guess)
