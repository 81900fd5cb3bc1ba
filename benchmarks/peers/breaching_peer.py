"""breaching [Geiping et al.], https://github.com/JonasGeiping/breaching, MIT licence."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace

import torch
from torch import Tensor, nn

from peers.base import Peer, Target


@dataclass(frozen=True)
class Breaching(Peer):
    """One of the attacks it is shipped with, by the name of its configuration."""

    configuration: str = "modern"

    @property
    def package(self) -> str:
        return "breaching"

    def attack(self, target: Target, steps: int) -> Tensor:
        import breaching  # type: ignore[import-not-found]

        settings = breaching.get_attack_config(self.configuration, overrides=[f"optim.max_iterations={steps}"])
        setup = {"dtype": torch.float, "device": torch.device("cpu")}
        attacker = breaching.attacks.prepare_attack(target.module, nn.CrossEntropyLoss(), settings, setup)
        sent = {
            "parameters": [one.detach() for one in target.module.parameters()],
            "buffers": list(target.module.buffers()),
            "metadata": SimpleNamespace(
                shape=list(target.shape),
                mean=target.mean.flatten().tolist(),
                std=target.std.flatten().tolist(),
                modality="vision",
            ),
        }
        shared = {
            "gradients": [one.clone() for one in target.gradient],
            "buffers": None,
            "metadata": {
                "num_data_points": len(target.labels),
                "labels": target.labels.clone(),
                "local_hyperparams": None,
            },
        }
        found, _ = attacker.reconstruct([sent], [shared], {}, dryrun=False)
        return target.pixels(found["data"])
