"""What a client does besides its local steps: augment its images, share a part of its update, send it rounded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Generator, Tensor
from torch.nn.functional import pad

from leakgauge import params as tree
from leakgauge.errors import InvalidCase
from leakgauge.protocol.clients import algorithm
from leakgauge.protocol.encoding import Encoding
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.local_update import FedAvg, LocalUpdate, Transformed, UpdateTransform
from leakgauge.types import Batch, ModelState, ParamTree


@dataclass(frozen=True)
class Augmentation(UpdateTransform):
    """The usual augmentation of images, drawn whenever one is loaded: what comes back is what the client trained on.

    Each image is mirrored with the chance ``flip``; moved by up to ``crop`` pixels either way, black coming in, which
    is padding and cropping; and its brightness and contrast are changed by factors within 1 +- ``colour``. An attacker
    finds the augmented image, so a mirrored or a shifted face is a face found.

    ``every_epoch``: a client of several epochs has a new version of each image in each of them. No attacker knows the
    draws; it then expects one image in every epoch, an approximation, and what comes back is held against the private
    image itself. It is set where the client makes several epochs.
    """

    flip: float = 0.0
    crop: int = 0
    colour: float = 0.0
    every_epoch: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.flip <= 1 or self.crop < 0 or not 0 <= self.colour < 1:
            raise InvalidCase(
                f"Augmentation needs 0 <= flip <= 1, crop >= 0 and 0 <= colour < 1, got {self}; correct it."
            )

    def __call__(self, local_update: LocalUpdate) -> LocalUpdate:
        steps = algorithm(local_update)
        again = isinstance(steps, FedAvg) and steps.epochs > 1
        return Transformed(local_update, replace(self, every_epoch=self.every_epoch or again))

    def encode(self, learner: Learner, state: ModelState, batch: Batch, *, generator: Generator) -> Encoding:
        del learner, state
        if batch.inputs.ndim != 4:
            raise InvalidCase("Augmentation is of images, and these are none; leave it out.")
        return Encoding(batch if self.every_epoch else self._version(batch, generator))

    def trains(self, learner: Learner, *, generator: Generator) -> Learner:
        if not self.every_epoch:
            return learner
        rule = learner.gradient_rule

        def of_a_version(learner: Learner, state: ModelState, batch: Batch) -> dict[str, Tensor]:
            return rule(learner, state, self._version(batch, generator))

        return replace(learner, gradient_rule=of_a_version)

    def _version(self, batch: Batch, generator: Generator) -> Batch:
        return replace(batch, inputs=torch.stack([self._augment(image, generator) for image in batch.inputs]))

    def _augment(self, image: Tensor, generator: Generator) -> Tensor:
        draws = torch.rand(5, generator=generator).tolist()
        if draws[0] < self.flip:
            image = image.flip(-1)
        if self.crop:
            down, right = (round((2 * draw - 1) * self.crop) for draw in draws[1:3])
            height, width = image.shape[-2:]
            padded = pad(image, (self.crop,) * 4)
            top, left = self.crop + down, self.crop + right
            image = padded[..., top : top + height, left : left + width]
        if self.colour:
            brightness, contrast = (1 + self.colour * (2 * draw - 1) for draw in draws[3:])
            bright = image * brightness
            image = ((bright - bright.mean()) * contrast + bright.mean()).clamp(0, 1)
        return image

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        del observed
        return params


@dataclass(frozen=True)
class Sharing(UpdateTransform):
    """Only some tensors of the update leave the client: those whose names match a pattern of ``only`` and none of
    ``without``, as when BatchNorm layers or the head stay at home [Li et al., 2021, FedBN; Arivazhagan et al., 2019].

    >>> list(Sharing(without=("head.*",)).transform({"body.w": torch.ones(1), "head.w": torch.ones(1)}, generator=None))
    ['body.w']
    """

    only: tuple[str, ...] = ("*",)
    without: tuple[str, ...] = ()

    def transform(self, params: ParamTree, *, generator: Generator | None) -> ParamTree:
        del generator
        kept = {name: tensor for name, tensor in params.items() if self.shares(name)}
        if not kept:
            raise InvalidCase(
                f"Of the update nothing is shared by only={self.only} and without={self.without}; its tensors are "
                f"{', '.join(params)}."
            )
        return kept

    def shares(self, name: str) -> bool:
        """Whether the tensor of this name leaves the client."""
        return any(fnmatchcase(name, one) for one in self.only) and not any(
            fnmatchcase(name, one) for one in self.without
        )

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        return {name: tensor for name, tensor in params.items() if name in observed}


_TYPES: Mapping[str, torch.dtype] = {"float16": torch.float16, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Transport(UpdateTransform):
    """The update is sent in half precision, ``float16`` or ``bfloat16``; an attacker anticipates what was rounded."""

    dtype: str = "float16"

    def __post_init__(self) -> None:
        if self.dtype not in _TYPES:
            raise InvalidCase(f"There is no transport by {self.dtype!r}; choose from {', '.join(_TYPES)}.")

    def transform(self, params: ParamTree, *, generator: Generator) -> ParamTree:
        del generator
        half = _TYPES[self.dtype]
        largest = torch.finfo(half).max
        return tree.map_tensors(lambda tensor: tensor.clamp(-largest, largest).to(half).to(tensor.dtype), params)

    def anticipate(self, params: ParamTree, *, observed: ParamTree) -> ParamTree:
        del observed
        return params
