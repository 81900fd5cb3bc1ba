"""A model that takes its inputs by a name, as one that takes them alone."""

from __future__ import annotations

from typing import Any, Literal

from torch import Tensor, nn

from leakgauge.errors import InvalidCase

Form = Literal["keyword", "dict"]
"""How the inputs are handed over: ``model(name=inputs)``, or ``model({name: inputs})``."""


class NamedInput(nn.Module):
    """``model`` with the inputs as the argument ``name``, or as that entry of a dict.

    ``others`` are handed over beside them, the same for every batch. The parameters are the model's own, and recorded
    rounds find them under its own names.
    """

    def __init__(self, model: nn.Module, name: str, form: Form = "keyword", **others: Any) -> None:
        super().__init__()
        if form not in ("keyword", "dict"):
            raise InvalidCase(f"There is no form {form!r} of handing inputs over; choose keyword or dict.")
        self.named_input = model
        self.name, self.form, self.others = name, form, others

    def forward(self, inputs: Tensor) -> Any:
        given = {self.name: inputs, **self.others}
        return self.named_input(given) if self.form == "dict" else self.named_input(**given)
