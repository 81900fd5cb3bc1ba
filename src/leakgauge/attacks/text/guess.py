"""Texts without a look at the update: what any attack on texts has to beat."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Attack, finite_update
from leakgauge.attacks.text.language import public_texts
from leakgauge.attacks.text.last_tokens import as_texts
from leakgauge.progress import Progress, silent
from leakgauge.protocol.losses import Targets
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import TokenSpace
from leakgauge.types import Outcome, Reconstruction


@final
@dataclass(frozen=True)
class TokenGuess(Attack):
    """The most frequent tokens, most frequent first, as many as a text usually has; the update tells it nothing.

    They are those of a file of ``public`` sentences, one a line, and as many as these have on average; without it those
    that the model which was sent expects most at every place, half as many as a text has room for.
    """

    public: str | None = None

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        del generator, progress
        finite_update(observation)  # refused like by any attack, though nothing is read from it
        count = known(observation.num_examples, "num_examples", needed_by=self)
        space = observation.space
        if not isinstance(space, TokenSpace):
            return not_applicable(f"the model takes {space.kinds}, and the guess is of texts")
        if self.public is None and observation.learner.targets is not Targets.TOKENS:
            return not_applicable("a classifier expects no tokens; name public sentences by `public=FILE`")
        guess = self._most_frequent(observation, space)
        texts = as_texts([guess] * count, space).to(observation.state.device)
        knew = "nothing of the update; " + ("the model's own expectation" if self.public is None else self.public)
        return Reconstruction(texts, observation.labels, Outcome.SOLVED, facts={"attacker knew": knew})

    def _most_frequent(self, observation: UpdateObservation, space: TokenSpace) -> tuple[int, ...]:
        if self.public is not None:
            texts = public_texts(self.public, space)
            usual = max(1, round(sum(map(len, texts)) / len(texts)))
            return tuple(token for token, _ in Counter(one for text in texts for one in text).most_common(usual))
        probe = space.probe(1, observation.state)
        with torch.no_grad():
            likely = observation.learner.scores(observation.state, probe)[0].softmax(dim=-1).mean(dim=0)
        likely[space.pad] = 0
        return tuple(likely.topk(min(max(2, space.length // 2), len(likely) - 1)).indices.tolist())
