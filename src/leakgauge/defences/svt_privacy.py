"""NVFlare's SVTPrivacy: a noisy choice of entries, each with noise of its own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Generator, Tensor

from leakgauge import params as tree
from leakgauge.defences.noise import LaplaceNoise
from leakgauge.errors import InvalidCase
from leakgauge.protocol.local_update import UpdateTransform
from leakgauge.types import ParamTree

_PASSES = 10_000
"""An entry that is not expected to be let through in so many times of asking is not waited for."""


@dataclass(frozen=True)
class SVTPrivacy(UpdateTransform):
    """The sparse vector technique [Dwork and Roth, 2014; Lyu et al., 2017] as NVFlare deploys it, with its defaults.

    Of n entries q = ceil(``fraction`` n) are to leave. An entry w is let through where |clip(w)| + Lap(2 gamma q /
    epsilon_2) reaches tau + Lap(gamma / epsilon_1), where epsilon_1 : epsilon_2 = 1 : (2 q)^(2/3) and both add up to
    epsilon; all are asked until q are through. Of these q are drawn, with replacement unless ``replace`` is off, and
    leave as clip(w) + Lap(2 gamma / noise_var); the others are zero. clip is to +-``gamma``, 1 / 20 of the noise by
    default. So since NVFlare 2.8; ``early`` is the rule of 2.7 and before: epsilon_1 = epsilon / 2, epsilon_2 =
    epsilon (2 q)^(2/3) / 2, and clip(w + Lap(2 gamma / noise_var)) leaves, which by default is hardly more than a sign.
    A parameter that is one number leaves as it is. ``spent`` is what the budgets add up to over the entries.

    An attacker who knows it expects of each visible entry its mean, and learns nothing of the others.
    """

    lengths: ClassVar[tuple[str, ...]] = ("gamma", "tau")

    fraction: float = 0.1
    epsilon: float = 0.1
    noise_var: float = 0.1
    gamma: float = 1e-5
    tau: float = 1e-6
    replace: bool = True
    early: bool = False

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise InvalidCase(f"SVTPrivacy(fraction=...) must lie in (0, 1], got {self.fraction}; correct it.")
        for name in ("epsilon", "noise_var"):
            if not getattr(self, name) > 0:
                raise InvalidCase(f"SVTPrivacy({name}=...) must be positive, got {getattr(self, name)}; correct it.")
        if not 0 < self.gamma < math.inf:
            raise InvalidCase(f"SVTPrivacy(gamma=...) must be positive and finite, got {self.gamma}; correct it.")
        if not 0 <= self.tau < math.inf:
            raise InvalidCase(f"SVTPrivacy(tau=...) must be at least 0 and finite, got {self.tau}; correct it.")

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        flat = tree.flatten(params)
        chosen = self._choose(flat, generator)
        noise = self._noise(2 * self.gamma / self.noise_var, len(chosen), flat, generator)
        sent = torch.zeros_like(flat)
        sent[chosen] = self._clip(flat[chosen] + noise) if self.early else self._clip(flat[chosen]) + noise
        parts = sent.split([tensor.numel() for tensor in params.values()])
        return {
            name: part.view_as(tensor) if tensor.ndim else tensor
            for (name, tensor), part in zip(params.items(), parts, strict=True)
        }

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        return {
            name: self._mean(tensor) * (observed[name] != 0) if tensor.ndim else tensor
            for name, tensor in params.items()
        }

    def spent(self, entries: int) -> float:
        """The epsilon of one round over all entries: threshold, questions and releases add up."""
        wanted = self._wanted(entries)
        asking = self.epsilon * (1 + self._questions(wanted)) if self.early else self.epsilon
        return asking + wanted * self.noise_var

    def _choose(self, flat: Tensor, generator: Generator) -> Tensor:
        wanted = self._wanted(flat.numel())
        size = flat.detach().abs().clamp_max(self.gamma)
        share = self._questions(wanted)
        first = self.epsilon / 2 if self.early else self.epsilon / (1 + share)
        threshold = self.tau + self._noise(self.gamma / first, 1, flat, generator)
        scale = 2 * self.gamma * wanted / (first * share)
        # Each leaves the questions when it is through: few that always are do not make up for many that never are.
        if (_PASSES * _pass(size - threshold, scale).double()).clamp_max(1).sum() < wanted:
            raise InvalidCase(
                f"SVTPrivacy(tau={self.tau}) lets fewer than {wanted} entries through however often it asks; lower it."
            )
        asked = torch.arange(flat.numel(), device=flat.device)
        through: list[Tensor] = []
        while sum(map(len, through)) < wanted:
            above = size[asked] + self._noise(scale, len(asked), flat, generator) >= threshold
            through.append(asked[above])
            asked = asked[~above]
        accepted = torch.cat(through)
        if self.replace:
            return accepted[torch.randint(len(accepted), (wanted,), generator=generator).to(flat.device)]
        return accepted[torch.randperm(len(accepted), generator=generator)[:wanted].to(flat.device)]

    def _mean(self, tensor: Tensor) -> Tensor:
        """Of clip(w + Lap(b)), with h(t) = E max(0, t + Lap(b)), it is h(w + gamma) - h(w - gamma) - gamma."""
        scale = 2 * self.gamma / self.noise_var
        if not scale or not self.early:
            return self._clip(tensor)

        def above(t: Tensor) -> Tensor:
            return t.relu() + scale / 2 * torch.exp(-t.abs() / scale)

        return above(tensor + self.gamma) - above(tensor - self.gamma) - self.gamma

    def _wanted(self, entries: int) -> int:
        return min(entries, math.ceil(self.fraction * entries))

    def _clip(self, tensor: Tensor) -> Tensor:
        return tensor.clamp(-self.gamma, self.gamma)

    @staticmethod
    def _questions(wanted: int) -> float:
        """The budget of all questions, that of the threshold being one."""
        return float((2.0 * wanted) ** (2 / 3))

    @staticmethod
    def _noise(scale: float, count: int, like: Tensor, generator: Generator) -> Tensor:
        return LaplaceNoise(scale).draw(torch.Size((count,)), generator=generator).to(like)


def _pass(margin: Tensor, scale: float) -> Tensor:
    """How likely margin + Lap(scale) is at least 0."""
    if not scale:
        return (margin >= 0).to(margin)
    tail = torch.exp(-margin.abs() / scale) / 2
    return torch.where(margin < 0, tail, 1 - tail)
