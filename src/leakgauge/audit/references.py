"""Other inputs of the private ones' kind, as a user gives them: for the crowd and for the nulls."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from leakgauge.audit.crowd import Pool, are_classes
from leakgauge.audit.draws import join_batches
from leakgauge.config import build_dataset
from leakgauge.data import read_pictures, read_references
from leakgauge.errors import InvalidCase
from leakgauge.protocol.learner import Learner
from leakgauge.protocol.losses import check_labels
from leakgauge.space import ImageSpace, InputSpace
from leakgauge.types import Batch


def pool_of_references(
    references: Tensor | Batch, like: Tensor, space: InputSpace, learner: Learner, width: int
) -> Pool:
    """What a user gives, after making sure that it can stand beside the private inputs ``like``."""
    inputs, labels, regions = (
        (references.inputs, references.labels, references.regions)
        if isinstance(references, Batch)
        else (references, None, None)
    )
    if len(inputs) == 0 or inputs.shape[1:] != like.shape[1:]:
        raise InvalidCase(
            f"References are one or more {space.kinds} of the private ones' shape {tuple(like.shape[1:])}, "
            f"got {tuple(inputs.shape)}; pass others of the same kind."
        )
    try:
        space.check(inputs)
    except InvalidCase as error:
        raise InvalidCase(f"The references do not fit: {error}") from error
    if labels is not None:
        try:
            check_labels(learner.loss, labels, width)
        except InvalidCase as error:
            raise InvalidCase(f"The labels of the references do not fit: {error}") from error
        labels = labels if are_classes(labels) else None
    return Pool(inputs.to(like), labels, "references given", regions)


def load_references(words: str, space: InputSpace, data_root: str | None) -> Tensor | Batch:
    """A folder of images, an .npz with ``images`` (or ``rows``) and maybe ``labels``, or a dataset by its name."""
    path = Path(words)
    if path.is_dir():
        if not isinstance(space, ImageSpace):
            raise InvalidCase(
                f"{words} is a folder of images, and the model takes {space.kinds}; give an .npz of rows."
            )
        return read_pictures(path, space.shape)
    if path.suffix == ".npz":
        return read_references(path, space)
    dataset = build_dataset(words, data_root)
    return join_batches([part for part in (dataset.test, dataset.train) if len(part)])
