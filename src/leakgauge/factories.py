"""Modules of the user's own, named in words."""

from __future__ import annotations

import importlib
import os
import sys

from torch import nn

from leakgauge.errors import InvalidCase


def import_factory(reference: str) -> nn.Module:
    """The module built by ``package.module:factory``, imported from the working folder or the environment."""
    module_name, _, attribute = reference.partition(":")
    if not module_name or not attribute:
        raise InvalidCase(f"The model {reference!r} names no factory; write package.module:factory.")
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    # The user's own code may fail in any way; what it says is the cause.
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
    except Exception as error:
        raise InvalidCase(
            f"The model factory {reference!r} cannot be imported ({cause(error)}); "
            "check its name and run from its folder."
        ) from error
    if isinstance(factory, nn.Module):
        raise InvalidCase(f"{reference!r} is a model; name a function that builds it, so that it can be built anew.")
    try:
        model = factory()
    except Exception as error:
        raise InvalidCase(
            f"The model factory {reference!r} must be callable without arguments, but failed ({cause(error)}); "
            "wrap it in a function that needs none."
        ) from error
    if not isinstance(model, nn.Module):
        raise InvalidCase(
            f"The model factory {reference!r} returned {type(model).__name__}; let it return a torch.nn.Module."
        )
    return model


def cause(error: Exception) -> str:
    """What went wrong, in one line."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__
