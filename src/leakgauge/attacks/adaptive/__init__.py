"""Attacks that know the defence: what a verdict rests on."""

from leakgauge.attacks.adaptive.adaptation import adapt, see_encodings
from leakgauge.attacks.adaptive.attack import Adaptive, adaptive
from leakgauge.attacks.adaptive.decoding import decode
from leakgauge.attacks.adaptive.rounds import decode_rounds
