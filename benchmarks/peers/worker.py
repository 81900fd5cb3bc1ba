"""One attack of a peer, in a process of its own: nothing it imports meets ours, and its CPU seconds are its own.

    python -m peers.worker PEER CHECKOUT TASK ANSWER

``TASK`` and ``ANSWER`` are .npz files of plain arrays. The task has the network by its name and seed, the gradient and
the labels, and not the images.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import baseline
from leakgauge.catalogue import MODELS
from leakgauge.config import build as build_part
from leakgauge.errors import LeakGaugeError
from leakgauge.models import build
from leakgauge.randomness import global_stream, seeded
from peers.base import Target, per_channel
from peers.registry import PEERS
from quality import filled

REHEARSED = (4, 12)
"""Steps of the two short runs that a peer is timed by, outside its budget; their difference has no set-up in it."""


def write_task(file: Path, **arrays: Any) -> None:
    np.savez(file, **arrays)


def target_of(task: Any) -> Target:
    """What is attacked, rebuilt from plain arrays."""
    shape = tuple(int(size) for size in task["shape"])
    factory = build_part(MODELS, str(task["model"]), kind="model")
    module = build(factory, shape, int(task["classes"]), seed=int(task["seed"])).eval()  # type: ignore[arg-type]
    mean, std = map(per_channel, baseline.normalisation(module))
    names = [name for name, _ in module.named_parameters()]
    gradient = tuple(torch.from_numpy(task[f"gradient:{name}"]) for name in names)
    labels = torch.from_numpy(task["labels"])
    return Target(baseline.without_normalisation(module), gradient, labels, shape, mean, std)  # type: ignore[arg-type]


def main(arguments: list[str]) -> int:
    name, checkout, task_file, answer_file = arguments
    torch.set_num_threads(1)
    sys.path.insert(0, checkout)
    with np.load(task_file, allow_pickle=False) as task:
        target, seconds = target_of(task), float(task["seconds"])
    peer = PEERS[name](Path(checkout))
    peer.check()

    def attack(steps: int) -> Tensor:
        # What peers print goes to the log; those that draw do so from torch's own stream.
        with contextlib.redirect_stdout(sys.stderr), global_stream(seeded(0, "peer", name)):
            return peer.attack(target, steps)

    steps = baseline.steps_by_difference(seconds, attack, REHEARSED)
    found = filled(seconds, steps, attack)
    assert found.images is not None
    np.savez(answer_file, images=found.images.numpy(), cpu_seconds=found.cpu_seconds, steps=found.steps)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except LeakGaugeError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
