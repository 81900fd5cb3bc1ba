"""What the optimiser moves, and how it becomes a batch of inputs."""

from leakgauge.attacks.matching.parametrisations.columns import ColumnLogits, Columns
from leakgauge.attacks.matching.parametrisations.pixels import (
    Box,
    Coordinates,
    Facts,
    Parametrisation,
    Pixels,
    Successor,
)
from leakgauge.attacks.matching.parametrisations.tokens import SoftTokens, TokenWeights
