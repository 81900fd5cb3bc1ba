"""The loop that trains the attacker's networks on what it simulates."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from leakgauge.attacks.budget import Budget
from leakgauge.progress import Progress, Tick


def train_network(
    network: nn.Module, loss_of: Callable[[], Tensor], budget: Budget, learning_rate: float, progress: Progress
) -> int:
    """Adam on a loss that is drawn anew in every step, its rate falling with the budget; the steps it took.

    The network ends in eval mode, without gradients.
    """
    optimiser = torch.optim.Adam(network.parameters(), lr=learning_rate)
    begun, steps, spent = budget.now(), 0, 0.0
    while spent < 1:
        loss = loss_of()
        optimiser.param_groups[0]["lr"] = learning_rate * (1 - spent)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        steps += 1
        spent = budget.spent(steps, budget.now() - begun)
        progress(Tick(steps, spent, float(loss.detach())))
    network.requires_grad_(False)
    network.eval()
    return steps
