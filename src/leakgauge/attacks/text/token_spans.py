"""Texts from the gradient of a language model, exactly: by what its layers' gradients span."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import torch
from torch import Generator, Tensor

from leakgauge.attacks.analytic.linear_layer import not_applicable
from leakgauge.attacks.base import Attack, finite_update
from leakgauge.attacks.certificates import certify, tolerance_of
from leakgauge.attacks.labels import best as best_labels
from leakgauge.attacks.text.encoders import assemble
from leakgauge.attacks.text.first_weights import FirstWeights, at_first_weights
from leakgauge.attacks.text.last_tokens import LastTokens, as_texts
from leakgauge.attacks.text.layers import Sight, TextLayer, TextLayers, text_layers
from leakgauge.attacks.text.linear_maps import MapReader
from leakgauge.attacks.text.prefixes import CLEARLY, Growth, Margins, Prefix, token_ratios
from leakgauge.attacks.text.selection import choose_texts, order_labels
from leakgauge.errors import InvalidCase, LeakGaugeError
from leakgauge.progress import Progress, Tick, silent
from leakgauge.protocol.losses import Targets
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.space import TokenSpace
from leakgauge.types import Outcome, Reconstruction

_CONFIRMED = 3
"""Layers that a prefix has to be inside of."""

_COVERED = 0.9
"""Share of the tokens that were found which texts are to be made of, where spans are in doubt; others are made up."""

_SLACKS, _LOOSE = (1.0, 5.0, 25.0), 4
"""How many times what the floor explains a prefix may lie outside, in turn; and the prefixes that are followed at once
for each text where that is more than once."""

_ARGUMENT = (
    "at every place every token of the vocabulary was tried, and none but those returned lies within what arithmetic "
    "leaves of the spans of the layers' gradients, the next one {apart:.0f} times farther outside"
)


@final
@dataclass(frozen=True)
class TokenSpans(Attack):
    """Tokens, and texts of them, whose layer inputs lie in the row spaces of the layers' gradients [Petrov et al.,
    2024, DAGER].

    The gradient of a linear map is a sum of what it read, so while a batch has fewer different tokens than the map has
    inputs, a token is in it if and only if what the first maps read of it lies in the span. They are taken together:
    with queries alone the first token of each text would be missing. Of decoders, texts then grow token by token
    against the spans of layers that see what came before; of encoders, tokens are put together by who listens to whom,
    which the gradient of queries and keys says. What counts as inside follows from the noise floor of the gradient
    itself. The last token, which nothing follows, is found by reproducing the whole gradient, and so is the
    certificate.

    The maps are found by what they compute: adapters are maps like others, so that of LoRA at rank r on queries, keys
    and values the tokens are found while there are at most 3r of them. At most ``width`` prefixes are followed at once.
    """

    width: int = 256

    def __post_init__(self) -> None:
        if self.width < 1:
            raise InvalidCase(f"TokenSpans follows one prefix or more at once, got width={self.width}; raise it.")

    def __call__(
        self, observation: UpdateObservation, *, generator: Generator, progress: Progress = silent
    ) -> Reconstruction:
        finite_update(observation)
        known(observation.num_examples, "num_examples", needed_by=self)
        known(observation.local_update, "local_update", needed_by=self)
        if not isinstance(observation.space, TokenSpace):
            return not_applicable(f"the model takes {observation.space.kinds}, and the attack serves texts")
        space = observation.space
        seen = at_first_weights(observation)
        layers = text_layers(seen.gradient, space, seen.errors)
        readers, margins = layers.of(Sight.TOKEN), Margins()
        if not readers:
            return nothing("no span stands out of the gradient: it is noise, or there are too many tokens", {})
        ratios = token_ratios(layers, readers, space)
        tokens = int((ratios <= 1).any(dim=1).sum())
        facts: dict[str, str | int | float] = {
            "layers that read tokens": ", ".join(layer.name for layer in readers),
            "rank of their spans": ", ".join(str(layer.span.rank) for layer in readers if layer.span is not None),
            "different tokens found": tokens,
        }
        progress(Tick(0, 0.1))
        if not tokens:
            return nothing("no token lies in the spans: there are more than they have room for, or noise", facts)
        texts, proved = self._texts(seen, layers, ratios, space, margins, facts, progress)
        facts["distance of what was left over what was taken"] = margins.apart
        result = Reconstruction(texts, self._labels(observation, texts, generator), Outcome.SOLVED, None, facts)
        if proved and margins.apart >= CLEARLY:
            result = certify(observation, result, _ARGUMENT.format(apart=min(margins.apart, 1e9)))
        progress(Tick(space.length, 1.0))
        return result

    def _texts(
        self,
        seen: FirstWeights,
        layers: TextLayers,
        ratios: Tensor,
        space: TokenSpace,
        margins: Margins,
        facts: dict[str, str | int | float],
        progress: Progress,
    ) -> tuple[Tensor, bool]:
        """The texts, and whether all others were excluded; without a layer to order tokens by, as they are numbered."""
        gradient, device = seen.gradient, seen.gradient.state.device
        count = gradient.num_examples or 1
        prefixes, proved = list[Prefix](), True
        if growing := layers.of(Sight.PREFIX)[:_CONFIRMED]:
            certain = seen.errors is None and _clear(growing)
            growth = self._grown(layers.reader, growing, ratios, space, count if certain else 0, progress)
            facts |= {
                "layers that see prefixes": ", ".join(layer.name for layer in growing),
                "prefixes tried": growth.margins.tried,
                "texts proposed": len(growth.ended),
                "taken up to, of what the floor explains": growth.slack,
            }
            margins.follow(growth.margins)
            prefixes = growth.ended if certain or _cover(growth.ended, ratios) >= _COVERED else []
        elif whole := layers.of(Sight.WHOLE)[:_CONFIRMED]:
            margins.note(ratios[torch.isfinite(ratios)])
            both = layers.of(Sight.TOKEN)[0], whole[0]
            prefixes, proved = assemble(layers.reader, both, ratios <= 1, count, gradient.update.params, facts)
        if not prefixes:
            facts["order"] = "not found: the layers that see more than one token span everything, or nothing"
            return _bag(ratios <= 1, space, count).to(device), False
        chosen = choose_texts(gradient, space, prefixes, count)
        facts["texts left"] = len(chosen)
        if gradient.learner.targets is not Targets.TOKENS:
            return as_texts(chosen, space).to(device), proved
        texts, residual = LastTokens(seen.whole, space, tuple(chosen)).find(tolerance_of(seen.whole))
        facts["residual with last tokens"] = residual
        return texts, proved

    def _grown(
        self,
        reader: MapReader,
        layers: Sequence[TextLayer],
        ratios: Tensor,
        space: TokenSpace,
        count: int,
        progress: Progress,
    ) -> Growth:
        """Prefixes as strictly as they make ``count`` texts of all tokens that were found; of the strictest, those that
        have most of them. Without a count there is no other try."""
        best, most = None, -1.0
        for slack in _SLACKS:
            width = self.width if best is None else min(self.width, _LOOSE * count)
            growth = Growth(reader, layers, ratios <= CLEARLY, space, width, slack)
            growth.run(progress, 0.8)
            covered = _cover(growth.ended, ratios)
            if best is None or covered > most:
                best, most = growth, covered
            if not count or (covered == 1 and len(growth.ended) >= count):
                break
        assert best is not None
        return best

    def _labels(self, observation: UpdateObservation, texts: Tensor, generator: Generator) -> Tensor | None:
        if observation.learner.targets is Targets.TOKENS:
            return observation.labels
        labels = observation.labels
        if labels is None:
            try:
                labels = best_labels().restore(observation, generator=generator)
            except LeakGaugeError:
                return None
        return order_labels(observation, texts, labels)


def _clear(layers: Sequence[TextLayer]) -> bool:
    return any(layer.span is not None and layer.span.is_clear for layer in layers)


def _cover(texts: Sequence[Prefix], ratios: Tensor) -> float:
    """The share of the tokens that were found which texts are made of."""
    found = set((ratios <= 1).any(dim=1).nonzero().flatten().tolist())
    return len(found & {token for text in texts for token in text}) / len(found)


def _bag(found: Tensor, space: TokenSpace, count: int) -> Tensor:
    """The tokens that were found, as they are numbered, on as many texts as there are."""
    tokens = found.any(dim=1).nonzero().flatten().tolist()[: count * space.length]
    each = max(1, min(space.length, -(-len(tokens) // count)))
    return as_texts([tuple(tokens[at : at + each]) for at in range(0, len(tokens), each)], space)


def nothing(reason: str, facts: dict[str, str | int | float]) -> Reconstruction:
    return Reconstruction(
        None, None, Outcome.NOT_APPLICABLE, facts={**facts, "reason": f"Nothing recovered: {reason}."}
    )
