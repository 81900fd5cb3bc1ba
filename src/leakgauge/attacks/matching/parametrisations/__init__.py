"""What the optimiser moves, and how it becomes a batch of images."""

from leakgauge.attacks.matching.parametrisations.base import Box, Coordinates, Facts, Parametrisation, Successor
from leakgauge.attacks.matching.parametrisations.pixels import Pixels
