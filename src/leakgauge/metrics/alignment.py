"""Which reconstruction belongs to which original: one exclusive matching that serves every metric."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from leakgauge.errors import InvalidCase
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch, Reconstruction


class NamedImages(NamedTuple):
    """Public images that an attack ``named`` in each encoding, n x m, and the ``members`` that are in it, n x j."""

    named: Tensor
    members: Tensor


@dataclass(frozen=True)
class Comparison:
    """Originals and their reconstructions, row by row, on the CPU.

    ``originals`` and ``reconstructions`` are n members of a ``space``, a row of NaN where nothing was reconstructed;
    without a space they are images n c h w. ``distractors`` are m of them for all victims, or n m, m for each victim;
    ``restored_labels`` belong to the batch, not to its rows.
    ``candidates`` counts the reconstructions that the matching chose from, ``None`` if the rows came paired;
    ``num_classes`` is the model's, ``None`` where it is not known. ``partners`` says which row of what came back stands
    beside each original, -1 for none; ``public`` is there for encodings whose public images were named.
    """

    originals: Tensor
    reconstructions: Tensor
    distractors: Tensor | None
    true_labels: Tensor
    restored_labels: Tensor | None
    candidates: int | None = None
    num_classes: int | None = None
    partners: Tensor | None = None
    public: NamedImages | None = None
    space: InputSpace = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        shape = tuple(self.originals.shape)
        if self.space is None:
            object.__setattr__(self, "space", ImageSpace.of(self.originals))
        if tuple(self.reconstructions.shape) != shape:
            raise InvalidCase(
                f"Reconstructions {tuple(self.reconstructions.shape)} do not pair with originals {shape}; "
                "use `align` to pair them."
            )
        if self.true_labels.shape[:1] != shape[:1]:
            raise InvalidCase(
                f"{shape[0]} originals came with labels {tuple(self.true_labels.shape)}; pass one label per original."
            )
        _require_finite(self.originals, f"private {self.space.kinds}")
        if self.distractors is not None:
            _check_distractors(self.distractors, shape)

    @property
    def measured(self) -> Tensor:
        """True for each original that has a reconstruction."""
        return torch.isfinite(self.reconstructions).flatten(1).all(dim=1)


def align(
    reconstruction: Reconstruction,
    truth: Batch,
    distractors: Tensor | None = None,
    num_classes: int | None = None,
    *,
    paired: bool = False,
    members: Tensor | None = None,
    space: InputSpace | None = None,
) -> Comparison:
    """Pair reconstructions with originals, each used once, so that the summed squared error is least [Kuhn, 1955].

    Originals left without a partner get a row of NaN, surplus and non-finite reconstructions are dropped. ``paired``
    rows belong together as they come, as those of one encoding do; ``members`` are the public images in it.

    >>> from leakgauge.types import Outcome
    >>> images = torch.arange(3.0).view(3, 1, 1, 1) / 2
    >>> attack_found = Reconstruction(images[[2, 0]], None, Outcome.SOLVED)
    >>> align(attack_found, Batch(images, torch.arange(3))).reconstructions.flatten()
    tensor([0., nan, 1.])
    """
    originals = _real(truth.inputs)
    space = space or ImageSpace.of(originals)
    _require_finite(originals, f"private {space.kinds}")
    candidates = originals[:0] if reconstruction.inputs is None else _real(reconstruction.inputs)
    if candidates.ndim != originals.ndim or candidates.shape[1:] != originals.shape[1:]:
        raise InvalidCase(
            f"The attack returned {space.kinds} shaped {tuple(candidates.shape)} for originals "
            f"{tuple(originals.shape)}; return as many as you like, each of an original's shape."
        )
    usable = torch.isfinite(candidates).flatten(1).all(dim=1).nonzero().flatten()
    if paired and len(candidates) not in (0, len(originals)):
        raise InvalidCase(f"{len(candidates)} images came back for {len(originals)} originals; return one for each.")
    rows, partners = usable, usable
    if not paired:
        matched = linear_sum_assignment(space.distance(originals, candidates[usable]).numpy())
        rows, partners = torch.from_numpy(matched[0]), usable[torch.from_numpy(matched[1])]
    dtype = torch.promote_types(originals.dtype, candidates.dtype)
    found = torch.full(originals.shape, torch.nan, dtype=dtype)
    found[rows] = candidates[partners].to(dtype)
    named = None if reconstruction.decoding is None or not paired else reconstruction.decoding.public
    return Comparison(
        originals=originals,
        reconstructions=found,
        distractors=None if distractors is None else _real(distractors),
        true_labels=truth.labels.detach().cpu(),
        restored_labels=None if reconstruction.labels is None else reconstruction.labels.detach().cpu(),
        candidates=None if paired else len(usable),
        num_classes=num_classes,
        partners=torch.full((len(originals),), -1).index_put((rows,), partners),
        public=None if named is None or members is None else NamedImages(named.detach().cpu(), members),
        space=space,
    )


def _real(images: Tensor) -> Tensor:
    return images.detach().to("cpu", torch.promote_types(images.dtype, torch.float32))


def _check_distractors(distractors: Tensor, shape: tuple[int, ...]) -> None:
    shared = distractors.shape[1:] == shape[1:]
    per_victim = distractors.shape[:1] == shape[:1] and distractors.shape[2:] == shape[1:]
    if not (shared or per_victim):
        raise InvalidCase(
            f"Distractors {tuple(distractors.shape)} do not fit originals {shape}; pass m of the same kind, "
            "or n m with a set for each original."
        )
    _require_finite(distractors, "distractors")


def _require_finite(inputs: Tensor, what: str) -> None:
    if not bool(torch.isfinite(inputs).all()):
        raise InvalidCase(f"The {what} hold values that are not finite; pass numbers.")
