"""Reading a model as a network of layers; what cannot be read is refused and differentiated by autograd."""

from __future__ import annotations

from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from leakgauge.attacks.matching.engine.network import Network
from leakgauge.attacks.matching.engine.reader import Reader
from leakgauge.attacks.matching.engine.recording import record, unknown
from leakgauge.attacks.matching.engine.rules import RULES, SMOOTH
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.types import ModelState


def trace(learner: Learner, state: ModelState, images: Tensor, *, fold: bool = True) -> Network:
    """The network of a learner for inputs of this shape; with ``fold``, BatchNorm in eval mode is folded."""
    if not images.is_floating_point():
        raise UnsupportedModel("A sweep moves numbers, and the tokens of texts are names; use token_spans or tag.")
    known = _READ.setdefault(learner.module, {})
    key = (
        images.shape, images.dtype, images.device, fold, learner.mode, learner.dropout, learner.composed,
        tuple(state.params), tuple(state.buffers),
    )  # fmt: skip
    if key not in known:
        known[key] = _read(learner, state, images, fold)
    found = known[key]
    if isinstance(found, UnsupportedModel):
        raise UnsupportedModel(str(found))
    return found


_READ: WeakKeyDictionary[nn.Module, dict[Any, Network | UnsupportedModel]] = WeakKeyDictionary()
"""What was read of each module: all attacks of an audit ask for the same."""


def _read(learner: Learner, state: ModelState, images: Tensor, fold: bool) -> Network | UnsupportedModel:
    try:
        recording = record(learner, state, images)
        return Reader(recording, frozenset(state.params), RULES, fold=fold, smooth=SMOOTH).read()
    except UnsupportedModel as refusal:
        return refusal.with_traceback(None)
    except Exception as error:  # an operation may be called in a way no rule foresaw
        return unknown(f"it cannot be read: {next(iter(str(error).splitlines()), repr(error))}")
