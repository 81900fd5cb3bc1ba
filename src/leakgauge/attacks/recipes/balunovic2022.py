"""LAMP: extracting text from gradients with language model priors [Balunović et al., 2022]."""

from __future__ import annotations

from leakgauge.attacks.matching import Cosine, Euclidean, GradientMatching
from leakgauge.attacks.matching.objectives import Objective
from leakgauge.attacks.matching.optimisers import Adam
from leakgauge.attacks.matching.parametrisations import SoftTokens
from leakgauge.attacks.recipes.shared import budget_from
from leakgauge.attacks.text.language import PublicSentences, SentModel
from leakgauge.attacks.text.matching import TextMatching
from leakgauge.attacks.text.moves import LanguageMoves


def lamp(
    public: str | None = None,
    weight: float = 0.01,
    steps: int | None = 300,
    restarts: int = 1,
    seconds: float | None = None,
) -> LanguageMoves:
    """LAMP with the cosine distance: continuous steps in turns with moves of tokens that the update and a language
    model choose [Balunović et al., 2022].

    ``public`` is a file of public sentences, one a line, that the language is learnt from; without it, the model that
    the client was sent says what a sentence is. Theirs is GPT-2. Ours moves weights of all tokens as `tag` does, so
    that no penalty has to keep embeddings at their length. Moves across texts are ours.
    """
    return _lamp(Cosine(), public, weight, steps, restarts, seconds)


def lamp_l2(
    public: str | None = None,
    weight: float = 0.01,
    steps: int | None = 300,
    restarts: int = 1,
    seconds: float | None = None,
) -> LanguageMoves:
    """LAMP with the Euclidean distance; theirs adds a share of the absolute one."""
    return _lamp(Euclidean(), public, weight, steps, restarts, seconds)


def _lamp(
    objective: Objective, public: str | None, weight: float, steps: int | None, restarts: int, seconds: float | None
) -> LanguageMoves:
    matching = GradientMatching(
        objective=objective,
        parametrisation=SoftTokens(),
        optimiser=Adam(learning_rate=0.5),
        restarts=restarts,
        budget=budget_from(steps, seconds),
    )
    language = SentModel() if public is None else PublicSentences(public)
    return LanguageMoves(TextMatching(matching), language, weight)
