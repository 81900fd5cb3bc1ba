"""What an update gives away of texts."""

from leakgauge.attacks.text.guess import TokenGuess
from leakgauge.attacks.text.language import LanguagePrior, PublicSentences, SentModel
from leakgauge.attacks.text.matching import TextMatching
from leakgauge.attacks.text.moves import LanguageMoves
from leakgauge.attacks.text.token_spans import TokenSpans
