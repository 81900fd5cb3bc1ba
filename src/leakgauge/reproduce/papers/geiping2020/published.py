"""What the paper prints: its numbers, its clients, its networks and its weights of total variation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# Rows of the tables, as they are printed here.
EUCLIDEAN, PROPOSED, OURS = "Euclidean + L-BFGS", "proposed", "ours (not in the paper)"
LENET, RESNET = "LeNet (Zhu)", "ResNet20-4"
TABLE3 = "Table 3, appendix B.3"


class LocalClient(NamedTuple):
    """E epochs over n images in mini-batches of B."""

    epochs: int
    images: int
    minibatch: int

    def __str__(self) -> str:
        return f"E={self.epochs}, n={self.images}, B={self.minibatch}"


PUBLISHED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "Table 1": {
        f"{LENET}, untrained: {EUCLIDEAN}": (46.25, 12.66),
        f"{LENET}, trained: {EUCLIDEAN}": (13.24, 5.44),
        f"{RESNET}, untrained: {EUCLIDEAN}": (10.29, 5.38),
        f"{RESNET}, trained: {EUCLIDEAN}": (6.90, 2.80),
        f"{LENET}, untrained: {PROPOSED}": (18.00, 3.33),
        f"{LENET}, trained: {PROPOSED}": (18.08, 4.27),
        f"{RESNET}, untrained: {PROPOSED}": (19.83, 2.96),
        f"{RESNET}, trained: {PROPOSED}": (13.95, 3.38),
    },
    "Table 2": {
        "E=1, n=4, B=2": (16.92, 2.10),
        "E=1, n=8, B=2": (14.66, 1.12),
        "E=1, n=8, B=8": (16.49, 1.02),
        "E=5, n=1, B=1": (25.05, 3.28),
        "E=5, n=8, B=8": (16.58, 0.96),
    },
    TABLE3: {
        "basic setup": (20.12, 1.02),
        "L2 loss instead of cosine similarity": (15.13, 0.70),
        "without total variation": (19.96, 0.75),
        "L-BFGS instead of Adam": (5.13, 0.50),
    },
    "Figure 4": {
        "ResNet-18, base width 16": (19.02, 2.84),
        "ResNet-18, base width 64": (22.04, 5.89),
        "ResNet-18, base width 128": (22.94, 6.83),
        "ResNet-34": (21.59, 4.49),
        "ResNet-50": (20.98, 5.57),
    },
}
"""Every number that is compared with, PSNR in dB and its spread, by where it is printed."""

CLIENTS: Mapping[LocalClient, float] = {
    LocalClient(1, 4, 2): 1e-6,
    LocalClient(1, 8, 2): 1e-6,
    LocalClient(1, 8, 8): 1e-4,
    LocalClient(5, 1, 1): 1e-4,
    LocalClient(5, 8, 8): 1e-4,
}
"""The clients of Table 2, each with its weight of total variation [Table 5]."""

FIGURE4 = {
    **{f"ResNet-18, base width {width}": (18, width) for width in (16, 64, 128)},
    "ResNet-34": (34, 64),
    "ResNet-50": (50, 64),
}
"""Depth and width."""

FIGURE5 = ((1, 1e-4), (5, 1e-4), (100, 1e-4), (5, 1e-3), (5, 1e-2), (5, 1e-1))
"""Local steps and their rate."""

TABLE4 = {(LENET, False): 1e-2, (LENET, True): 1e-3, (RESNET, False): 0.0, (RESNET, True): 1e-2}
"""Weight of total variation by architecture and whether it is trained."""
