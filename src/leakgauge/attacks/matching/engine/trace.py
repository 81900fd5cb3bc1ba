"""Reading a model as a network of layers; what cannot be read is refused and differentiated by autograd."""

from __future__ import annotations

from torch import Tensor

from leakgauge.attacks.matching.engine.network import Network
from leakgauge.attacks.matching.engine.reader import Reader
from leakgauge.attacks.matching.engine.recording import record, unknown
from leakgauge.attacks.matching.engine.rules import RULES, SMOOTH
from leakgauge.errors import UnsupportedModel
from leakgauge.protocol.learner import Learner
from leakgauge.types import ModelState


def trace(learner: Learner, state: ModelState, images: Tensor, *, fold: bool = True) -> Network:
    """The network of a learner for inputs of this shape; with ``fold``, BatchNorm in eval mode is folded."""
    recording = record(learner, state, images)
    try:
        return Reader(recording, frozenset(state.params), RULES, fold=fold, smooth=SMOOTH).read()
    except UnsupportedModel:
        raise
    except Exception as error:  # an operation may be called in a way no rule foresaw
        raise unknown(f"it cannot be read: {next(iter(str(error).splitlines()), repr(error))}") from error
