"""A client trains, its round is recorded, and what the file gives away is recovered from the file alone.

python examples/record_and_invert.py [--steps 400]
"""

import argparse
import tempfile
from pathlib import Path

import torch

from leakgauge import FedAvg, RecordedRound, observe, read_round, write_round
from leakgauge.attacks.recipes import quasi_newton
from leakgauge.data import Photos
from leakgauge.metrics import PSNR, align
from leakgauge.models import Compact, build
from leakgauge.randomness import seeded


def main(steps: int) -> float:
    photos = Photos()(None)
    model = build(Compact(), photos.space.shape, photos.num_classes, seed=0)
    private = photos.test[torch.tensor(photos.highlights[:1])]
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(2):  # the client's own training loop
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(private.inputs), private.labels).backward()
        optimiser.step()

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "round.safetensors"
        algorithm = "fedavg:epochs=2,batch_size=1,learning_rate=0.01"
        recorded = RecordedRound.between(
            before, model.state_dict(), photos.space, num_examples=1, local_update=algorithm
        )
        write_round(path, recorded)
        # From here on only the file is used, as `leakgauge invert` does.
        fresh = build(Compact(), photos.space.shape, photos.num_classes, seed=1)
        observation = observe(read_round(path), fresh, local_update=FedAvg(epochs=2, batch_size=1, learning_rate=0.01))
    reconstruction = quasi_newton(steps=steps)(observation, generator=seeded(0, "attack"))
    psnr = float(PSNR()(align(reconstruction, private)))
    print(f"recovered the private image at {psnr:.1f} dB; label {reconstruction.labels.tolist()}")
    return psnr


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=400)
    main(parser.parse_args().steps)
