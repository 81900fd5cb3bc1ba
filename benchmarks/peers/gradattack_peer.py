"""GradAttack [Huang et al., 2021], https://github.com/Princeton-SysML/GradAttack, MIT licence."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from peers.base import Peer, Target


@dataclass(frozen=True)
class GradAttack(Peer):
    """Its reconstructor as its own example runs it, under pytorch-lightning.

    It asks for the images, for their shape and to log how near it is; it gets grey ones. It was written for the first
    pytorch-lightning: `_for_today` bridges what the second calls otherwise, and changes no step of the attack.
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
        program = _for_today(GradientReconstructor)(
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


def _for_today(program: Any) -> Any:
    """The class with the signatures of pytorch-lightning 2, and steps that count though it owns its optimiser."""
    import torchmetrics.functional as measures  # type: ignore[import-not-found]

    if not hasattr(measures, "psnr"):  # its former name, which the program logs by
        measures.psnr = measures.peak_signal_noise_ratio

    class Today(program):  # type: ignore[misc]
        taken = 0

        @property
        def global_step(self) -> int:
            return self.taken  # else it stays 0, and every step would log a picture

        def transfer_batch_to_device(self, batch: Any, device: Any, *_loader: int) -> Any:
            return super().transfer_batch_to_device(batch, device)

        def manual_backward(self, loss: Tensor, *_optimiser: Any) -> None:
            super().manual_backward(loss)

        def training_step(self, *arguments: Any) -> Any:
            found = super().training_step(*arguments)
            self.taken += 1
            return found

    return Today
