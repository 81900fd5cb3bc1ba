"""What an update gives away of texts."""

from leakgauge.attacks.text.matching import TextMatching
from leakgauge.attacks.text.token_spans import TokenSpans
