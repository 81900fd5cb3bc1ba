"""The last token of each text, which no layer's gradient spans, since nothing follows it: but it is what the model
should have said, and so it is in the gradient as a whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from leakgauge import params as tree
from leakgauge.attacks.text.prefixes import Prefix
from leakgauge.protocol.fit import compare_updates, predict
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import TokenSpace
from leakgauge.types import ModelState, ParamTree

_STEP = 1e-3
"""Of the length of the parameters: how far they are moved to see which scores follow."""

_TRIED, _TRIES = 4, 48
"""Tokens of each text that are tried in turn at least, and of all texts together if that is more."""

_BELIEVED = 0.05
"""Relative residual of the gradient up to which the last tokens are believed."""


@dataclass(frozen=True)
class LastTokens:
    """Texts whose last tokens are being looked for, so that the client's update becomes the observed one."""

    seen: UpdateObservation
    space: TokenSpace
    prefixes: tuple[Prefix, ...]

    def find(self, enough: float) -> tuple[Tensor, float]:
        """The texts, and how far their update is from the observed one; `without` where that is far."""
        if not self.prefixes or max(map(len, self.prefixes)) >= self.space.length:
            return self.without, float("nan")
        last = self._scores(self.seen.state, self._texts(torch.ones(len(self.prefixes)).long())).argmax(dim=1)
        residual, apart = self._residual(last)
        if not math.isfinite(residual):
            return self.without, residual
        for _ in range(2 + len(self.prefixes)):
            if residual <= enough:
                break
            guess, order = self._propose(last, apart)
            better = self._improve(last, residual, guess, order, enough)
            if better is None:
                break
            last, residual, apart = better
        return (self._texts(last), residual) if residual <= _BELIEVED else (self.without, residual)

    @property
    def without(self) -> Tensor:
        """The texts as far as they are spanned."""
        return as_texts(self.prefixes, self.space).to(self.seen.state.device)

    def _propose(self, last: Tensor, apart: ParamTree) -> tuple[Tensor, Tensor]:
        """For each text the token whose score falls most when the parameters move towards what is not explained; and
        those that fall next, in turn with the likeliest ones, since a score may fall along with that of its neighbour.

        With y for what was said and g for the guess, the difference of the gradients is the sum of the gradients of
        the scores of g, less those of y, over the texts.
        """
        state, texts = self.seen.state, self._texts(last)
        length = float(tree.norm(apart))
        step = _STEP * float(tree.norm(state.params)) / max(length, torch.finfo(torch.float64).tiny)
        ahead, behind = (
            self._scores(ModelState(tree.add(state.params, apart, scale=sign * step), state.buffers), texts)
            for sign in (1, -1)
        )
        count = 1 + max(_TRIED, _TRIES // len(texts))
        falling = (ahead - behind).double().argsort(dim=1)[:, :count]
        likely = (ahead + behind).argsort(dim=1, descending=True)[:, :count]
        return falling[:, 0], torch.stack((falling, likely), dim=2).flatten(1)

    def _improve(
        self, last: Tensor, residual: float, guess: Tensor, order: Tensor, enough: float
    ) -> tuple[Tensor, float, ParamTree] | None:
        """The proposals of all texts at once, or else one after another, where the residual falls."""
        best = None
        whole, apart = self._residual(guess)
        if whole < residual:
            last, residual, best = guess, whole, (guess, whole, apart)
        for row in range(len(last)):
            for token in dict.fromkeys(order[row].tolist()):
                if residual <= enough:
                    return best
                if token == int(last[row]):
                    continue
                other = last.clone()
                other[row] = token
                found, apart = self._residual(other)
                if found < residual:
                    last, residual, best = other, found, (other, found, apart)
        return best

    def _residual(self, last: Tensor) -> tuple[float, ParamTree]:
        """Relative, of the client's update of these texts, whatever its scale; and the difference itself."""
        state, observed = self.seen.state, self.seen.update.params
        expected = predict(self.seen, self._texts(last), None)
        if expected is None:
            return float("nan"), {}
        compared = compare_updates(expected, observed)
        apart = {name: tensor - compared.scale * expected[name] for name, tensor in observed.items()}
        held = {name: apart.get(name, torch.zeros_like(tensor)) for name, tensor in state.params.items()}
        return compared.misfit, held

    def _texts(self, last: Tensor) -> Tensor:
        return as_texts([(*one, int(token)) for one, token in zip(self.prefixes, last)], self.space).to(last.device)

    def _scores(self, state: ModelState, texts: Tensor) -> Tensor:
        """Of what follows each prefix, the padding left out."""
        with torch.no_grad():
            scores = self.seen.learner.scores(state, texts)
        rows = torch.arange(len(texts), device=texts.device)
        places = torch.tensor([len(one) - 1 for one in self.prefixes], device=texts.device)
        mine = scores[rows, places].clone()
        mine[:, self.space.pad] = mine.mean(dim=1)
        return mine


def as_texts(prefixes: Sequence[Prefix], space: TokenSpace) -> Tensor:
    """Members of the space; what is too long is cut off."""
    rows = torch.full((len(prefixes), space.length), space.pad)
    for row, prefix in zip(rows, prefixes, strict=True):
        row[: len(prefix)] = torch.tensor(prefix[: space.length])
    return rows
