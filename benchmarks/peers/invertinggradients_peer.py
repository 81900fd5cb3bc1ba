"""invertinggradients [Geiping et al., 2020], https://github.com/JonasGeiping/invertinggradients, MIT licence."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from peers.base import Peer, Target


@dataclass(frozen=True)
class InvertingGradients(Peer):
    """Its reconstruction as in the paper: one start, signed Adam with decay, one angle over all tensors."""

    total_variation: float = 1e-2

    @property
    def package(self) -> str:
        return "inversefed"

    def attack(self, target: Target, steps: int) -> Tensor:
        import inversefed  # type: ignore[import-not-found]

        settings = {
            "signed": True,
            "boxed": True,
            "cost_fn": "sim",
            "indices": "def",
            "weights": "equal",
            "lr": 0.1,
            "optim": "adam",
            "restarts": 1,
            "max_iterations": steps,
            "total_variation": self.total_variation,
            "init": "randn",
            "filter": "none",
            "lr_decay": True,
            "scoring_choice": "loss",
        }
        program = inversefed.GradientReconstructor(
            target.module, (target.mean, target.std), settings, num_images=len(target.labels)
        )
        found, _ = program.reconstruct(list(target.gradient), target.labels, img_shape=target.shape)
        return target.pixels(found)
