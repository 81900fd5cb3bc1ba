"""The batch as a defence: the least with which no layer gives whole examples away, and what training in it reaches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from leakgauge.data import Dataset
from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.risk.layers import largest_batch, layer_risks
from leakgauge.tradeoff.plan import TradeoffPlan
from leakgauge.training import PreparedTraining, Trained, TrainingPlan, prepare_training


@dataclass(frozen=True)
class BatchRule:
    """By the rank rule some layer gives whole examples away in updates of fewer than ``batch_size`` of them.

    ``utility`` is an undefended training in such batches with as many examples in all as the other trainings see.
    """

    batch_size: int
    utility: Trained | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "batch_size": self.batch_size,
            "utility": None if self.utility is None else self.utility.to_dict(),
        }


def ruled_batch(plan: TradeoffPlan, dataset: Dataset) -> int:
    """The least batch that gives no whole example away; `InvalidCase` where the model cannot be read."""
    prepared = prepare_training(plan.training(plan.defences[0]), dataset)
    training, one = prepared.training, dataset.train[torch.arange(1)]
    # Noise in the place of an image: the rule is about the model, and looks at no data.
    noise = replace(one, inputs=torch.rand(one.inputs.shape, generator=torch.Generator().manual_seed(0)))
    try:
        layers = layer_risks(training.learner, training.state, dataset.space, noise)
    except UnsupportedModel as error:
        raise InvalidCase(f"The rank rule cannot be applied to this model: {error} Leave `batch_rule` out.") from error
    return largest_batch(layers) + 1


def ruled_training(plan: TradeoffPlan, dataset: Dataset, batch_size: int) -> PreparedTraining:
    """Undefended, in batches of that size, over as many examples."""
    usual = plan.training("none")
    recipe = usual.chosen_recipe()
    words: TrainingPlan = replace(usual, batch_size=batch_size)
    if recipe.steps is not None:
        words = replace(words, steps=max(1, round(recipe.steps * recipe.batch_size / batch_size)), epochs=None)
    return prepare_training(words, dataset)
