"""An adapter for a frozen transformer, whose rows sort the patches of an image."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import relu

from leakgauge.attacks.analytic.linear_layer import not_applicable, restored_labels
from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.malicious.base import Facts, MaliciousAttack
from leakgauge.attacks.malicious.bins import BinContents, expected_alone, read_cells, sample_edges
from leakgauge.attacks.malicious.guessed_images import guess_images
from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.progress import Progress
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.observation import UpdateObservation, known
from leakgauge.randomness import seeded
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import ModelState, Outcome, Reconstruction

_KEEPS_SHAPE = (nn.LayerNorm, nn.Dropout, nn.Identity, nn.TransformerEncoderLayer)
_GUESSED = 100
_FAINT = 0.01
"""How much of a token's size the adapter adds to it, all rows together."""
_POSITION = 1e-2
"""Largest part of a token, after the position's own, that no patch explains."""


@dataclass(frozen=True)
class BinnedAdapter(MaliciousAttack):
    """Bins in a bottleneck adapter give away the patches of an image though the model is frozen [Sami et al., 2025].

    The client trains nothing but an adapter ``x + up(relu(down(x)))`` on the tokens that enter the first block. The
    rows of ``down`` measure a token in one of several directions, and their biases cut bins, as in `FrontLayer`. What
    is in a bin alone is a token: patch embedding plus position, an affine function of the image that the server knows.
    The position is the one whose patch explains the token, which takes more channels than a patch has pixels. One
    image: whose patch it is among several is not told.
    """

    bins: int = 1000
    measures: int = 4
    server: ClassVar[str] = "freezes the model and sends an adapter whose rows sort the patches of an image"
    serves: ClassVar[type[InputSpace]] = ImageSpace

    def __post_init__(self) -> None:
        if not 1 <= self.measures <= self.bins:
            raise InvalidCase(f"BinnedAdapter needs bins >= measures >= 1, got {self}; correct it.")

    def expected_recovery(self, tokens: int) -> float:
        """How many of so many tokens are expected alone in their bin under one measure at least."""
        return expected_alone(tokens, self.bins // self.measures, self.measures)

    def rebuild(
        self, learner: Learner, state: ModelState, space: InputSpace, public: Tensor | None
    ) -> tuple[nn.Module, ModelState]:
        name = _token_site(learner, state, space)
        images = guess_images(space.shape, _GUESSED, seeded(0, "guessed")) if public is None else public[:_GUESSED]
        tokens = _tokens(learner, state, images.to(state.device, state.dtype), name)
        _positions(learner, state, space, name)  # refuses where a token does not tell its place
        rows = tokens.detach().flatten(0, 1).double()
        width = rows.shape[1]
        directions = torch.linalg.svd(rows - rows.mean(dim=0), full_matrices=False).Vh[: self.measures]
        edges = torch.stack([sample_edges(self.bins // self.measures, values) for values in directions @ rows.mT])
        back = torch.randn(width, 1, generator=seeded(0, "adapter"), dtype=torch.float64) * _FAINT / edges.numel()
        adapter = {
            "down.weight": directions.repeat_interleave(edges.shape[1], dim=0),
            "down.bias": -edges.flatten(),
            "up.weight": back.expand(width, edges.numel()),
            "up.bias": torch.zeros(width, dtype=torch.float64),
        }
        module = learner.in_mode(learner.mode).module
        parent, _, child = name.rpartition(".")
        setattr(module.get_submodule(parent), child, Adapted(module.get_submodule(name), width, edges.numel()))
        inner = {_inside(one, name): tensor for one, tensor in {**state.params, **state.buffers}.items()}
        held = {f"{name}.{one}": tensor.to(state.device, state.dtype).contiguous() for one, tensor in adapter.items()}
        return module, ModelState(held, inner)

    def read(self, observation: UpdateObservation, *, generator: Generator, progress: Progress) -> Reconstruction:
        del progress
        if known(observation.num_examples, "num_examples", needed_by=self) != 1:
            return not_applicable("whose patch it is among several images is not told")
        name = next(iter(observation.update.params)).removesuffix(".down.weight")
        positions = _positions(observation.learner, observation.state, observation.space, name)
        found = read_cells(self._cells(observation, name), len(positions))
        image = torch.full((math.prod(observation.space.shape),), 0.5, dtype=torch.float64)
        placed = set()
        for token in found.images:
            place, pixels = _place(token, positions)
            if place is not None:
                placed.add(place)
                image[positions[place].pixels] = pixels
        patches = sum(len(one.pixels) > 0 for one in positions)
        if not placed:
            return not_applicable("no bin holds a token alone")
        facts: Facts = {
            "layer": name,
            "patches found": len(placed),
            "patches": patches,
            "expected patches": round(self.expected_recovery(len(positions)) * patches / len(positions), 1),
        }
        return Reconstruction(
            image.clamp(0, 1).to(observation.state.dtype).view(1, *observation.space.shape),
            restored_labels(observation, IDLG(), generator=generator),
            Outcome.SOLVED,
            facts=facts,
        )

    def _cells(self, observation: UpdateObservation, name: str) -> BinContents:
        def grouped(tensor: Tensor) -> Tensor:
            return tensor.unflatten(0, (self.measures, -1)).double()

        sent, update = observation.state.params, observation.update.params
        weight, bias = grouped(update[f"{name}.down.weight"]), grouped(update[f"{name}.down.bias"])
        weights = bias - torch.cat((bias[:, 1:], torch.zeros_like(bias[:, :1])), dim=1)
        contents = weight - torch.cat((weight[:, 1:], torch.zeros_like(weight[:, :1])), dim=1)
        noise = 100 * torch.finfo(observation.state.dtype).eps * float(bias.abs().max())
        directions, edges = grouped(sent[f"{name}.down.weight"])[:, 0], -grouped(sent[f"{name}.down.bias"])
        return BinContents(directions, edges, contents, weights, noise, low=-math.inf, high=math.inf, unit=0.1)


class Adapted(nn.Module):
    """``inner(x + up(relu(down(x))))``."""

    def __init__(self, inner: nn.Module, width: int, bins: int) -> None:
        super().__init__()
        self.inner = inner
        self.down = nn.Linear(width, bins, device="meta")
        self.up = nn.Linear(bins, width, device="meta")

    def forward(self, tokens: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self.inner(tokens + self.up(relu(self.down(tokens))), *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # A parent may look into the layer that was here.
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name == "inner":
                raise
            return getattr(self.inner, name)


class TokenMap(NamedTuple):
    """A token as an affine function of its patch: ``start + slope @ image[pixels]``."""

    start: Tensor
    slope: Tensor
    pixels: Tensor


def _inside(name: str, site: str) -> str:
    """The name of a tensor after the module at ``site`` became the inner one of an adapter."""
    return f"{site}.inner.{name.removeprefix(f'{site}.')}" if name.startswith(f"{site}.") else name


def _token_site(learner: Learner, state: ModelState, space: InputSpace) -> str:
    """The first layer that receives a row of tokens and passes such on."""
    seen = learner.in_mode("eval").layer_inputs(state, space.probe(2, state), nn.Module)
    rows = {name: value for name, value in seen.items() if value.ndim == 3}
    found = [name for name in rows if isinstance(learner.module.get_submodule(name), _KEEPS_SHAPE)]
    if found:
        # The whole block rather than its first layer, which it may look into.
        around = [name for name in found if found[0].startswith(f"{name}.") and rows[name] is rows[found[0]]]
        return min(around, key=len, default=found[0])
    raise UnsupportedModel("No layer of the model receives tokens that an adapter could sort; use another attack.")


def _tokens(learner: Learner, state: ModelState, images: Tensor, name: str) -> Tensor:
    """What flows into the layer."""
    # With gradients: without, blocks of torch's own run as one and show none of their layers.
    images = images if images.requires_grad else images.detach().requires_grad_()
    return learner.in_mode("eval").layer_inputs(state, images, nn.Module)[name]


def _positions(learner: Learner, state: ModelState, space: InputSpace, name: str) -> list[TokenMap]:
    """Each token as a function of the image; refuses where it is not affine, or does not tell its place."""
    pixels = math.prod(space.shape)
    image = torch.zeros(1, *space.shape, dtype=state.dtype, device=state.device, requires_grad=True)
    tokens = _tokens(learner, state, image, name)
    width = tokens.shape[2]
    basis = torch.eye(width, dtype=state.dtype, device=state.device)
    found = []
    for token in tokens[0]:
        slopes = torch.zeros(width, pixels, dtype=state.dtype, device=state.device)
        if token.requires_grad:
            graded = torch.autograd.grad(
                token, image, basis, retain_graph=True, is_grads_batched=True, materialize_grads=True
            )
            slopes = graded[0].reshape(width, pixels)
        (support,) = slopes.abs().amax(dim=0).nonzero(as_tuple=True)
        if len(support) >= width:
            raise UnsupportedModel(
                f"A token of {width} channels does not tell where its patch of {len(support)} pixels is; use another "
                "attack."
            )
        found.append(TokenMap(token.detach().double(), slopes[:, support].double(), support))
    probe = torch.rand(pixels, generator=seeded(0, "probe"), dtype=torch.float64).to(state.device)
    seen = _tokens(learner, state, probe.to(state.dtype).view(1, *space.shape), name)[0].detach()
    expected = torch.stack([one.start + one.slope @ probe[one.pixels] for one in found])
    if not torch.allclose(expected, seen.double(), rtol=1e-3, atol=1e-4 * float(seen.abs().max())):
        raise UnsupportedModel(f"What enters {name!r} is no affine function of the image; use another attack.")
    return found


def _place(token: Tensor, positions: list[TokenMap]) -> tuple[int | None, Tensor]:
    """The position whose patch explains a token, and the patch; None where none does."""
    best: tuple[float, int | None, Tensor] = (_POSITION, None, token[:0])
    for number, one in enumerate(positions):
        if len(one.pixels) == 0:
            continue
        offset = token - one.start
        patch = torch.linalg.lstsq(one.slope, offset[:, None]).solution
        left = float((offset[:, None] - one.slope @ patch).norm() / offset.norm().clamp(min=1e-12))
        if left < best[0]:
            best = (left, number, patch[:, 0])
    return best[1], best[2]
