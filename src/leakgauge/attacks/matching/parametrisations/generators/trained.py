"""A generator that was trained on public images: searching its latents, its features, and its weights per image."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Generator, Tensor, nn
from torch.func import functional_call, vmap

from leakgauge.attacks.matching.parametrisations import Coordinates, Facts, Parametrisation, Successor
from leakgauge.errors import InvalidCase, InvalidFile
from leakgauge.factories import cause, import_factory
from leakgauge.files import read_tensors
from leakgauge.generative import DCGAN, read_generator
from leakgauge.protocol.observation import UpdateObservation
from leakgauge.space import ImageSpace, require
from leakgauge.types import Shape


@dataclass(frozen=True)
class TrainedGenerator:
    """A network from latents N(0, 1) to images, and the safetensors ``file`` of its weights; never a pickle.

    ``factory`` names the function that builds it, ``package.module:factory``, and then ``latent`` how long its latents
    n d are; without one the file is of ``leakgauge train-generator``. ``signed``: its pixels lie in [-1, 1] instead of
    [0, 1]. Without a file the network is untrained and knows nothing of images: what it makes of an update is a
    baseline. The network runs in eval mode, so that one image does not depend on the others.
    """

    file: str | None = None
    factory: str | None = None
    latent: int | None = None
    signed: bool = False

    def __post_init__(self) -> None:
        if self.factory is not None and (self.file is None or self.latent is None):
            raise InvalidCase(
                "A generator of your own needs the file of its weights and the length of its latents; give both."
            )

    def load(self, shape: Shape, like: Tensor) -> LoadedGenerator:
        """Ready for images of this shape, on the device and in the precision of ``like``."""
        module, latent = self._module(shape)
        module = module.to(device=like.device, dtype=like.dtype).eval().requires_grad_(False)
        stages = tuple(module) if isinstance(module, nn.Sequential) else (module,)
        loaded = LoadedGenerator(stages, latent, self.signed, self._facts())
        self._check(loaded, shape, like)
        return loaded

    def _module(self, shape: Shape) -> tuple[nn.Module, int]:
        if self.file is None:
            network = DCGAN(shape)
            return network.generator(seed=0), network.latent
        if self.factory is None:
            module, network = read_generator(Path(self.file))
            return module, network.latent
        own = import_factory(self.factory)
        tensors, _ = read_tensors(Path(self.file))
        try:
            own.load_state_dict(tensors)
        except RuntimeError as error:
            raise InvalidFile(
                f"The weights in {self.file} are not those of {self.factory!r} ({cause(error)}); give its own."
            ) from error
        assert self.latent is not None
        return own, self.latent

    def _check(self, loaded: LoadedGenerator, shape: Shape, like: Tensor) -> None:
        try:
            with torch.no_grad():
                made = tuple(loaded.images(like.new_zeros(1, loaded.latent)).shape[1:])
        except Exception as error:  # the user's own code may fail in any way
            raise InvalidCase(
                f"The generator cannot be run on latents of length {loaded.latent} ({cause(error)}); correct `latent`."
            ) from error
        if made != shape:
            raise InvalidCase(f"The generator makes images {made}, the client's are {shape}; train one for that size.")

    def _facts(self) -> Facts:
        if self.file is None:
            return {"generator": "untrained, knows nothing of images"}
        # Which weights they were, without the path of this machine.
        content = hashlib.sha256(Path(self.file).read_bytes()).hexdigest()[:12]
        return {
            "generator": f"trained, {content}",
            "control": "part of these images is the generator's own; the same attack on noise says how much",
        }


@dataclass(frozen=True, eq=False)
class LoadedGenerator:
    """The stages of a generator, one after another; a network that is no ``nn.Sequential`` has one."""

    stages: tuple[nn.Module, ...]
    latent: int
    signed: bool
    facts: Facts

    def images(self, features: Tensor, stage: int = 0) -> Tensor:
        """From what enters a stage, for a batch."""
        for one in self.stages[stage:]:
            features = one(features)
        return (features + 1) / 2 if self.signed else features

    def weights(self) -> dict[str, Tensor]:
        return dict(self._whole().named_parameters())

    def images_of_own(self, weights: dict[str, Tensor], latents: Tensor) -> Tensor:
        """Images n c h w of latents n d, each by weights of its own (stacked n ...)."""
        whole = self._whole()

        def one(weights: dict[str, Tensor], latent: Tensor) -> Tensor:
            made: Tensor = functional_call(whole, weights, (latent[None],))
            return made[0]

        made = vmap(one)(weights, latents)
        return (made + 1) / 2 if self.signed else made

    def _whole(self) -> nn.Sequential:
        return nn.Sequential(*self.stages)


@dataclass(frozen=True)
class GeneratorLatent(Parametrisation):
    """x = G(z), one latent z to be found for each image, from N(0, 1) [Jeon et al., 2021, GIAS]."""

    generator: TrainedGenerator = TrainedGenerator()

    def bind(self, observation: UpdateObservation, num_examples: int) -> LatentsOfOne:
        require(observation.space, ImageSpace, self)
        del num_examples
        like = next(iter(observation.state.params.values()))
        return LatentsOfOne(self.generator.load(observation.space.shape, like))


class StageInputs(Coordinates):
    """What enters a stage of a generator is moved."""

    generator: LoadedGenerator
    stage: int

    @property
    def facts(self) -> Facts:
        return self.generator.facts

    @abstractmethod
    def features(self, variables: Tensor) -> Tensor:
        """What enters the stage, rows n ..."""

    def decode(self, variables: Tensor) -> Tensor:
        features = self.features(variables)
        return self.generator.images(features.flatten(0, 1), self.stage).unflatten(0, features.shape[:2])


@dataclass(frozen=True, eq=False)
class LatentsOfOne(StageInputs):
    """Rows of latents n d."""

    generator: LoadedGenerator
    stage: int = 0

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        del shape
        return torch.randn(restarts, num_examples, self.generator.latent, generator=generator)

    def features(self, variables: Tensor) -> Tensor:
        return variables


class AfterLatents(Successor, ABC):
    """A search that goes on from the latents of a generator, and cannot begin."""

    def bind(self, observation: UpdateObservation, num_examples: int) -> Coordinates:
        del observation, num_examples
        raise self.misplaced()

    def misplaced(self) -> InvalidCase:
        return InvalidCase(
            f"{type(self).__name__} goes on from the latents of a generator; put it after GeneratorLatent in a Relay."
        )


@dataclass(frozen=True)
class GeneratorFeatures(AfterLatents):
    """x = G_K(... G_i(h)), h what enters stage i = ``stage``, within an l1 ball around where it starts
    [Fang et al., 2023, GIFD].

    ``radius`` is the mean absolute change of a feature that is allowed, so that it means the same for every size.
    """

    stage: int = 1
    radius: float = 0.05

    def __post_init__(self) -> None:
        if self.stage < 1 or not self.radius > 0:
            raise InvalidCase(
                f"GeneratorFeatures needs stage >= 1 and radius > 0, got {self.stage} and {self.radius}; correct them."
            )

    def after(self, earlier: Coordinates, variables: Tensor) -> FeaturesOfOne:
        if not isinstance(earlier, StageInputs):
            raise self.misplaced()
        loaded = earlier.generator
        if not earlier.stage < self.stage < len(loaded.stages):
            raise InvalidCase(
                f"The generator has {len(loaded.stages)} stages and stage {earlier.stage} was searched; "
                f"{self.stage} does not follow, so search fewer stages."
            )
        with torch.no_grad():
            features = earlier.features(variables).flatten(0, 1)
            for one in loaded.stages[earlier.stage : self.stage]:
                features = one(features)
            return FeaturesOfOne(loaded, features.unflatten(0, variables.shape[:2]), self.stage, self.radius)


@dataclass(frozen=True, eq=False)
class FeaturesOfOne(StageInputs):
    """Rows of features n ..., kept in the ball by what is made of them, so that any optimiser may move them."""

    generator: LoadedGenerator
    centre: Tensor
    stage: int
    radius: float

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        del num_examples, shape, generator
        return self.centre[:restarts].clone()

    def features(self, variables: Tensor) -> Tensor:
        centre = self.centre[: len(variables)]
        moved = (variables - centre).flatten(2)
        return centre + onto_l1_ball(moved, self.radius * moved.shape[2]).view_as(variables)


@dataclass(frozen=True)
class WeightsPerImage(AfterLatents):
    """x_j = G(z_j; th_j): the latents as they were found, weights th_j of its own for each image
    [Jeon et al., 2021, GIAS, second phase]."""

    def after(self, earlier: Coordinates, variables: Tensor) -> WeightsPerImageOfOne:
        if not isinstance(earlier, LatentsOfOne):
            raise self.misplaced()
        return WeightsPerImageOfOne(earlier.generator, variables.detach())


@dataclass(frozen=True, eq=False)
class WeightsPerImageOfOne(Coordinates):
    """Rows n p: one flat vector of weights for each image; memory grows with images times weights."""

    generator: LoadedGenerator
    latents: Tensor

    @property
    def facts(self) -> Facts:
        return self.generator.facts

    def start(self, restarts: int, num_examples: int, shape: Shape, *, generator: Generator) -> Tensor:
        del shape, generator
        flat = torch.cat([tensor.flatten() for tensor in self.generator.weights().values()])
        return flat.repeat(restarts, num_examples, 1)

    def decode(self, variables: Tensor) -> Tensor:
        own = self.generator.weights()
        parts = variables.flatten(0, 1).split([tensor.numel() for tensor in own.values()], dim=1)
        weights = {name: part.unflatten(1, own[name].shape) for name, part in zip(own, parts, strict=True)}
        latents = self.latents[: len(variables)].flatten(0, 1)
        return self.generator.images_of_own(weights, latents).unflatten(0, variables.shape[:2])


def onto_l1_ball(vectors: Tensor, radius: float) -> Tensor:
    """The nearest point with sum |x_i| <= radius along the last axis [Duchi et al., 2008].

    >>> onto_l1_ball(torch.tensor([[3.0, -1.0], [0.5, 0.0]]), 2.0)
    tensor([[2.0000, -0.0000],
            [0.5000, 0.0000]])
    """
    lengths = vectors.abs()
    ordered = lengths.sort(dim=-1, descending=True).values
    excess = ordered.cumsum(dim=-1) - radius
    count = torch.arange(1, vectors.shape[-1] + 1, device=vectors.device, dtype=vectors.dtype)
    last = (ordered * count > excess).sum(dim=-1, keepdim=True).clamp_min(1)
    threshold = (excess.gather(-1, last - 1) / last).clamp_min(0)
    inside = lengths.sum(dim=-1, keepdim=True) <= radius
    return torch.where(inside, vectors, vectors.sign() * (lengths - threshold).clamp_min(0))
