"""A generator as a safetensors file: its weights, and in words the network they belong to."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from torch import nn

from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.files import read_tensors, write_tensors
from leakgauge.generative.dcgan import DCGAN

_NETWORK = "dcgan"


def write_generator(path: Path, network: DCGAN, module: nn.Module, described: Mapping[str, str]) -> None:
    """``described`` says how it was trained."""
    write_tensors(path, module.state_dict(), {**described, _NETWORK: json.dumps(asdict(network))})


def read_generator(path: Path) -> tuple[nn.Sequential, DCGAN]:
    """The generator in eval mode; only numbers are read from the file, never code."""
    tensors, described = read_tensors(path)
    try:
        words = json.loads(described[_NETWORK])
        network = DCGAN(tuple(words["image_shape"]), int(words["width"]), int(words["latent"]))
        module = network.generator(seed=0)
        module.load_state_dict(tensors)
    except (KeyError, TypeError, ValueError, RuntimeError, InvalidCase) as error:
        raise InvalidFile(
            f"{path} holds no generator that `leakgauge train-generator` wrote; name the factory of your own network."
        ) from error
    return module.eval(), network
