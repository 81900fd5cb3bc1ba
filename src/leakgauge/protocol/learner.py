"""A model and its loss as pure functions of (parameters, buffers, batch)."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional
from torch.nn.functional import cross_entropy
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode

from leakgauge.errors import InvalidCase, UnsupportedModel
from leakgauge.protocol.bare_modules import bare_module, check_trainable
from leakgauge.protocol.losses import Loss, LossFunction, Targets, as_loss, describe_output, targets_of
from leakgauge.protocol.second_derivatives import composed, uncheckpointed
from leakgauge.types import Batch, BatchStatistics, ModelState, ParamTree

Mode = Literal["train", "eval"]
GradientRule = Callable[["Learner", ModelState, Batch], dict[str, Tensor]]

_Dropping = _DropoutNd | nn.MultiheadAttention | nn.RNNBase


def autograd_gradient(learner: Learner, state: ModelState, batch: Batch) -> dict[str, Tensor]:
    """Gradient of the loss in the parameters, itself differentiable when anything that enters it is."""
    inputs = (batch.inputs, batch.labels, *state.params.values())
    differentiable = torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs)
    leaves = {name: p if p.requires_grad else p.detach().requires_grad_() for name, p in state.params.items()}
    with torch.enable_grad():
        loss = learner.objective(leaves, state.buffers, batch)
        if not loss.requires_grad:
            raise UnsupportedModel(
                "The loss depends on no trainable parameter, so there is no update; check the model."
            )
        gradients = torch.autograd.grad(
            loss, list(leaves.values()), create_graph=differentiable, materialize_grads=True
        )
    return dict(zip(leaves, gradients))


def functional_gradient(learner: Learner, state: ModelState, batch: Batch) -> dict[str, Tensor]:
    """The same gradient through ``torch.func``: slower on small models, but composes with ``vmap`` and ``jvp``."""
    return torch.func.grad(lambda params: learner.objective(params, state.buffers, batch))(dict(state.params))


@dataclass(frozen=True)
class Tampering:
    """What a malicious server did to a learner: whose work it is, or why that server could not do it."""

    attack: object
    refusal: str | None = None


@dataclass(frozen=True)
class Learner:
    """What every client runs. ``module`` is a private copy without storage; the weights live in ``ModelState``.

    ``mode`` is the client's: in "train" BatchNorm uses the batch's own statistics and dropout is active, in "eval"
    the running statistics. Neither ever writes to a buffer. With ``dropout`` off, nothing is dropped in either. With
    ``composed``, operations that torch differentiates only once are replaced by equal ones with two derivatives.
    """

    module: nn.Module
    loss: LossFunction = cross_entropy
    mode: Mode = "eval"
    gradient_rule: GradientRule = autograd_gradient
    dropout: bool = True
    tampering: Tampering | None = None
    composed: bool = False

    def logits(self, params: ParamTree, buffers: ParamTree, inputs: Tensor) -> Tensor:
        """What the model returns: scores n x k or, for a loss that knows what to make of it, anything."""
        if self.mode == "train":
            # A user's own layer may write to its buffers; it gets copies, so that the state stays as it was sent.
            buffers = {name: buffer.clone() for name, buffer in buffers.items()}
        dropping = self.dropout or self.mode == "eval"
        twice = composed() if self.composed else nullcontext()
        with nullcontext() if dropping else _NothingDropped(), twice, uncheckpointed():
            return functional_call(self.module, {**params, **buffers}, (inputs,))

    def objective(self, params: ParamTree, buffers: ParamTree, batch: Batch) -> Tensor:
        return self.loss(self.logits(params, buffers, batch.inputs), batch.labels)

    def gradient(self, state: ModelState, batch: Batch) -> dict[str, Tensor]:
        return self.gradient_rule(self, state, batch)

    def in_mode(self, mode: Mode) -> Learner:
        return replace(self, module=_without_storage(self.module, mode), mode=mode)

    def without_dropout(self) -> Learner:
        """The network an attacker can run: the client's dropout masks are secret, so the expected network stands in."""
        if not any(isinstance(layer, _Dropping) for layer in self.module.modules()):
            return replace(self, dropout=False)  # nothing to change, so nothing to copy
        module = _without_storage(self.module, self.mode)
        for layer in module.modules():
            if isinstance(layer, _DropoutNd):
                layer.eval()
            elif isinstance(layer, nn.MultiheadAttention | nn.RNNBase):
                layer.dropout = 0.0
        return replace(self, module=module, dropout=False)

    def batch_norm_layers(self) -> tuple[str, ...]:
        return tuple(name for name, layer in self.module.named_modules() if isinstance(layer, _BatchNorm))

    def batch_statistics(self, state: ModelState, inputs: Tensor) -> BatchStatistics:
        """Mean and variance of the input of each BatchNorm layer, differentiable in ``inputs``."""
        means: dict[str, Tensor] = {}
        variances: dict[str, Tensor] = {}
        names = self.batch_norm_layers()

        def note(name: str, value: Tensor, _: Tensor) -> None:
            # At once, so that the inputs of all layers are never held together.
            if name in names:
                axes = [axis for axis in range(value.ndim) if axis != 1]
                means[name] = value.mean(axes)
                variances[name] = value.var(axes, unbiased=False)

        with _observing(self.module, nn.Module, note):
            self.logits(state.params, state.buffers, inputs)
        return BatchStatistics(means, variances)

    def layer_inputs(self, state: ModelState, inputs: Tensor, layer_type: type[nn.Module]) -> dict[str, Tensor]:
        """What flows into each layer of one type, in the order of execution."""
        seen: dict[str, Tensor] = {}
        with _observing(self.module, layer_type, lambda name, value, _: seen.__setitem__(name, value)):
            self.logits(state.params, state.buffers, inputs)
        return seen

    def classifier(self, state: ModelState, probe: Tensor) -> str:
        """Name of the linear layer whose output *is* the logits, found by running ``probe``."""
        outputs: dict[str, Tensor] = {}
        with torch.no_grad(), _observing(self.module, nn.Linear, lambda name, _, out: outputs.__setitem__(name, out)):
            scores = self.scores(state, probe)
        for name, output in outputs.items():
            if output is scores:
                return name
        raise UnsupportedModel(
            "The model's output is not the output of an nn.Linear layer, so labels cannot be read from its head; "
            "disclose the labels or use an attack that does not need them."
        )

    @property
    def targets(self) -> Targets:
        """What the labels are."""
        return targets_of(self.loss)

    def scores(self, state: ModelState, inputs: Tensor) -> Any:
        """What the loss looks at: of a user's own function, all that the model returns."""
        output = self.logits(state.params, state.buffers, inputs)
        return self.loss.scores(output) if isinstance(self.loss, Loss) else output

    def width(self, state: ModelState, probe: Tensor) -> int:
        """How many scores each example has; 0 where only the user's own loss can tell."""
        with torch.no_grad():
            scores = self.scores(state, probe)
        rows = isinstance(scores, Tensor) and scores.ndim == 2
        if self.targets is Targets.CLASSES and not rows:
            raise InvalidCase(
                f"The model returned {describe_output(scores)} instead of one row of class scores per input; wrap it "
                "in one that does, or pass a loss that says which part counts, CrossEntropy(output=...), on the "
                "command line --loss cross_entropy:output=..., or your own."
            )
        if self.targets is Targets.OWN:
            return scores.shape[1] if rows else 0
        return scores[0].numel() if scores.ndim else 0

    def num_classes(self, state: ModelState, probe: Tensor) -> int:
        """How many classes the labels tell apart."""
        width = self.width(state, probe)
        if self.targets is Targets.BINARY:
            return 2
        if self.targets not in (Targets.CLASSES, Targets.OWN) or not width:
            raise UnsupportedModel(
                f"The labels of this model are {self.targets.value}, not classes; disclose the labels, and use attacks "
                "that do not have to restore them."
            )
        return width


def learner_and_state(
    module: nn.Module, loss: LossFunction = cross_entropy, *, mode: Mode = "eval"
) -> tuple[Learner, ModelState]:
    """Split a module into what it computes and what it holds; the module itself is neither kept nor changed.

    A module wrapped for training (DataParallel, torch.compile, Opacus) is taken out of its wrapping.
    """
    module = bare_module(module)
    check_trainable(module)
    # Clones, so that training the module afterwards does not move the state that was sent.
    params = {name: p.detach().clone() for name, p in module.named_parameters() if p.requires_grad}
    frozen = {name: p.detach().clone() for name, p in module.named_parameters() if not p.requires_grad}
    buffers = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    return Learner(_without_storage(module, mode), as_loss(loss), mode), ModelState(params, {**frozen, **buffers})


def _without_storage(module: nn.Module, mode: Mode) -> nn.Module:
    # A twin without storage per tensor, not ``.to("meta")``, which would untie weights that two layers share.
    twins: dict[int, Tensor] = {id(b): torch.empty_like(b, device="meta") for b in module.buffers()}
    for p in module.parameters():
        twins[id(p)] = nn.Parameter(torch.empty_like(p, device="meta"), requires_grad=p.requires_grad)
    skeleton = copy.deepcopy(module, twins).train(mode == "train")
    for layer in skeleton.modules():
        if isinstance(layer, _BatchNorm):
            # In train mode the layer then uses the batch's statistics without writing running ones; eval is unaffected.
            layer.track_running_stats = False
    return skeleton


class _NothingDropped(TorchFunctionMode):
    """Dropout that a model calls as a function, which no layer can be asked to leave out."""

    _functions = frozenset(
        getattr(functional, name)
        for name in ("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
    )

    def __torch_function__(
        self, func: Callable[..., Any], types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self._functions:
            return args[0] if args else kwargs["input"]
        if func is functional.scaled_dot_product_attention:
            # query, key, value, mask, dropout_p, ...
            args, kwargs = (*args[:4], *((0.0,) if len(args) > 4 else ()), *args[5:]), {**kwargs}
            kwargs.pop("dropout_p", None)
        return func(*args, **kwargs)


def probe_of(inputs: Tensor) -> Tensor:
    """The first input twice, to ask a model for its layers: BatchNorm in train mode may refuse a single one."""
    return inputs[:1].expand(2, *inputs.shape[1:])


@contextmanager
def _observing(
    module: nn.Module, layer_type: type[nn.Module], note: Callable[[str, Tensor, Tensor], None]
) -> Iterator[None]:
    """Call ``note(name, input, output)`` for each layer of a type while the block runs."""

    def hook(name: str) -> Callable[[nn.Module, tuple[Tensor, ...], Tensor], None]:
        return lambda _, inputs, output: note(name, inputs[0], output) if inputs else None

    handles = [
        layer.register_forward_hook(hook(name))
        for name, layer in module.named_modules()
        if isinstance(layer, layer_type)
    ]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
