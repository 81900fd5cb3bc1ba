"""What does one update of my model give away? The five lines of the README, on an embedded photograph.

python examples/audit_my_model.py [--steps 600] [--out report]
"""

import argparse

import torch

import leakgauge
from leakgauge.data import Photos
from leakgauge.models import Compact, build


def main(steps: int, out: str | None) -> leakgauge.AuditResult:
    photos = Photos()(None)
    model = build(Compact(), photos.space.shape, photos.num_classes, seed=0)  # any torch.nn.Module that takes pixels
    face = photos.test[torch.tensor(photos.highlights[:1])]
    attack = f"quasi_newton:steps={steps}"
    result = leakgauge.audit(
        model,
        torch.nn.functional.cross_entropy,
        (face.inputs, face.labels),
        attacks=[attack],
        defences=["none", "clipping:max_norm=1+gaussian_noise:std=0.1"],
        references=photos.test.inputs[1:200],
        out=out,
    )
    for row in result.rows:
        psnr = row.measurements["psnr"]
        print(f"{row.defence:45} {row.verdict.value:15} PSNR {psnr.attack.mean:5.1f} dB, null {psnr.null.mean:5.1f} dB")
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--out")
    options = parser.parse_args()
    main(options.steps, options.out)
