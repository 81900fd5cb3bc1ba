"""A network that starts with a linear layer hands over its input: no optimisation, more than 100 dB.

python examples/fully_connected_is_exact.py
"""

import torch

from leakgauge import THREAT_MODELS, Federation, learner_and_state, simulate_round
from leakgauge.attacks.analytic import LinearLayer
from leakgauge.data import Photos
from leakgauge.defences import Clipping, NoDefence
from leakgauge.metrics import PSNR, align
from leakgauge.models import MLP, build
from leakgauge.randomness import seeded


def main() -> list[float]:
    photos = Photos()(None)
    learner, state = learner_and_state(build(MLP(), photos.space.shape, photos.num_classes, seed=0))
    face = photos.test[torch.tensor(photos.highlights[:1])]
    scores = []
    for defence in (NoDefence(), Clipping(0.01)):
        observation = simulate_round(
            Federation(learner, state),
            face,
            threat_model=THREAT_MODELS["honest_but_curious"],
            defence=defence,
            generator=seeded(0, "client"),
        )
        scores.append(float(PSNR()(align(LinearLayer()(observation, generator=seeded(0, "attack")), face))))
        print(f"{defence!r:30} {scores[-1]:.0f} dB")
    return scores


if __name__ == "__main__":
    main()
