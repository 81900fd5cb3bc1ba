"""Attacks that know the defence: what a verdict rests on."""

from leakgauge.attacks.adaptive.attack import Adaptive, adapt, adaptive, see_encodings
from leakgauge.attacks.adaptive.decoding import decode, decode_rounds
