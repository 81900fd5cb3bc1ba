"""Opacus: a user's own private training, audited as it was set up."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from leakgauge.audit.api import audit
from leakgauge.audit.result import UNDEFENDED, AuditResult
from leakgauge.bounds import Bound, gaussian_bound
from leakgauge.defences import DPSGD, epsilon
from leakgauge.defences.dpsgd import DELTA, Accountant
from leakgauge.errors import InvalidCase
from leakgauge.protocol.bare_modules import bare_module
from leakgauge.protocol.local_update import FedAvg
from leakgauge.protocol.optimisers import LocalAdam, LocalAdamW, LocalOptimiser, LocalSGD
from leakgauge.types import Batch

try:
    from opacus import PrivacyEngine
    from opacus.optimizers import AdaClipDPOptimizer, DPOptimizer, DPPerLayerOptimizer
    from opacus.validators import ModuleValidator
except ImportError as error:
    raise ImportError(
        "leakgauge.integrations.opacus needs Opacus; install it with `pip install leakgauge[dp]`."
    ) from error


@dataclass(frozen=True)
class PrivateTraining:
    """What a training with Opacus does in every step, read off its parts.

    ``model`` is the user's own, unwrapped, its weights shared. ``steps`` are those that its accountant has seen.
    """

    model: nn.Module
    noise_multiplier: float
    max_grad_norm: float
    expected_batch_size: int
    sample_rate: float
    learning_rate: float
    optimiser: LocalOptimiser
    steps: int

    @property
    def defence(self) -> DPSGD:
        return DPSGD(self.max_grad_norm, self.noise_multiplier, self.expected_batch_size)

    def client(self, num_examples: int) -> FedAvg:
        """The step that is made of a batch of this size, whatever size was expected."""
        return FedAvg(1, num_examples, self.learning_rate, optimiser=self.optimiser)

    def epsilon(self, steps: int | None = None, delta: float = DELTA, accountant: Accountant = "rdp") -> float:
        """What so many steps guarantee, those made so far where none are given."""
        made = self.steps if steps is None else steps
        return epsilon(self.noise_multiplier, self.sample_rate, made, delta, accountant)

    def bound(self, steps: int | None = None, crowd: int = 99) -> Bound:
        """The most that any attacker could identify: what the epsilon buys."""
        rounds = max(1, self.steps if steps is None else steps)
        return gaussian_bound(self.noise_multiplier, crowd=crowd, rounds=rounds, sampling=self.sample_rate)

    def words(self, steps: int | None = None, delta: float = DELTA, crowd: int = 99) -> str:
        """Epsilon by each accountant, and beside it the bound on what can be found."""
        made = self.steps if steps is None else steps
        by_name = {name: self.epsilon(made, delta, name) for name in ("rdp", "prv")}
        said = ", ".join(f"{value:.3g} ({name})" for name, value in by_name.items())
        return f"epsilon {said} at delta {delta:g} after {made} steps. {self.bound(made, crowd).words}"

    def audit(
        self, loss: Callable[..., Tensor] | str, batch: Batch | tuple[Tensor, Tensor], **options: Any
    ) -> AuditResult:
        """What one step on this batch gives away, as it is set up and without DP-SGD; options of `leakgauge.audit`."""
        private = batch if isinstance(batch, Batch) else Batch(*batch)
        known: dict[str, Any] = {
            "defences": (UNDEFENDED, self.defence),
            "local_update": self.client(len(private)),
        } | options
        return audit(self.model, loss, private, **known)


def from_privacy_engine(
    engine: PrivacyEngine, module: nn.Module, optimizer: torch.optim.Optimizer, data_loader: DataLoader[Any]
) -> PrivateTraining:
    """Read what ``engine.make_private`` returned."""
    if not isinstance(optimizer, DPOptimizer):
        raise InvalidCase(
            f"The optimiser is {type(optimizer).__name__} and not private; pass the one that make_private returned."
        )
    if isinstance(optimizer, AdaClipDPOptimizer | DPPerLayerOptimizer):
        raise InvalidCase(
            f"{type(optimizer).__name__} does not clip every example's whole gradient to one norm, which DP-SGD here "
            "does; set it up with clipping='flat'."
        )
    groups = optimizer.original_optimizer.param_groups
    if len({group["lr"] for group in groups}) != 1:
        raise InvalidCase("The groups of parameters have different learning rates; audit with one of them.")
    return PrivateTraining(
        model=bare_module(module),
        noise_multiplier=float(optimizer.noise_multiplier),
        max_grad_norm=float(optimizer.max_grad_norm),
        # Of a summed loss nothing is divided.
        expected_batch_size=1 if optimizer.loss_reduction == "sum" else int(optimizer.expected_batch_size),
        sample_rate=_sample_rate(data_loader),
        learning_rate=float(groups[0]["lr"]),
        optimiser=_read_optimiser(optimizer.original_optimizer),
        steps=sum(steps for *_, steps in engine.accountant.history),
    )


def without_batch_norm(module: nn.Module) -> nn.Module:
    """A copy that can be trained privately: GroupNorm in the place of BatchNorm, in which examples meet.

    By Opacus' own rules, which also replace layers that have no gradients of single examples.
    """
    mode = module.training
    return ModuleValidator.fix(bare_module(module)).train(mode)


def _sample_rate(loader: DataLoader[Any]) -> float:
    """Of a Poisson loader its own; of any other the share that a batch is of an epoch."""
    return float(vars(loader).get("sample_rate") or 1 / len(loader))


def _adam(group: Mapping[str, Any]) -> dict[str, float]:
    beta1, beta2 = group["betas"]
    return {"beta1": beta1, "beta2": beta2, "eps": group["eps"], "weight_decay": group["weight_decay"]}


_Reader = Callable[[Mapping[str, Any]], LocalOptimiser]

_OPTIMISERS: Mapping[type[torch.optim.Optimizer], _Reader] = {
    torch.optim.SGD: lambda group: LocalSGD(
        group["momentum"], group["dampening"], group["weight_decay"], group["nesterov"]
    ),
    torch.optim.Adam: lambda group: LocalAdam(**_adam(group)),
    torch.optim.AdamW: lambda group: LocalAdamW(**_adam(group)),
}


def _read_optimiser(optimizer: torch.optim.Optimizer) -> LocalOptimiser:
    group = optimizer.param_groups[0]
    if type(optimizer) not in _OPTIMISERS or group.get("maximize") or group.get("amsgrad"):
        known = ", ".join(kind.__name__ for kind in _OPTIMISERS)
        raise InvalidCase(f"The optimiser {type(optimizer).__name__} is not followed as it is; use one of {known}.")
    return _OPTIMISERS[type(optimizer)](group)
