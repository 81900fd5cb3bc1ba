"""What all tests share: one thread per worker, and a few plain functions, handed out as fixtures."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from leakgauge.defences import NoDefence
from leakgauge.protocol import (
    THREAT_MODELS,
    Federation,
    FedSGD,
    LocalUpdate,
    ThreatModel,
    UpdateObservation,
    learner_and_state,
    simulate_round,
)
from leakgauge.protocol.learner import Mode
from leakgauge.randomness import seeded
from leakgauge.types import Batch, Shape

PLAIN, UNDEFENDED = FedSGD(), NoDefence()


@pytest.fixture(autouse=True, scope="session")
def _one_thread_per_worker() -> None:
    # Two workers with two OpenMP threads each wait for one another.
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A real browser without a window."""
    from playwright.sync_api import sync_playwright

    from browser_support import BROWSER

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield started
        started.close()


# The helpers are of session scope, so that hypothesis may use them.


@pytest.fixture(scope="session")
def examples() -> Callable[..., Batch]:
    """``examples(n, ...)``: private examples of random pixels and random classes."""
    return _examples


@pytest.fixture(scope="session")
def attacked() -> Callable[..., UpdateObservation]:
    """``attacked(module, batch, ...)``: what the threat model lets an attacker see of one client."""
    return _attacked


@pytest.fixture(scope="session")
def reachable() -> Callable[[Any], dict[str, Tensor]]:
    """``reachable(value)``: every tensor that can be reached from a value, by its path."""
    return lambda value: dict(_reachable(value, "", set()))


@pytest.fixture(scope="session")
def bits() -> Callable[..., dict[str, tuple[Any, ...]]]:
    """``bits(value, ...)``: type, shape and bytes of every tensor that can be reached, and the flags of modules."""
    return _bits


def _examples(
    count: int = 1,
    image_shape: Shape = (3, 8, 8),
    classes: int = 5,
    *,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
) -> Batch:
    generator = seeded(seed, "examples")
    images = torch.rand(count, *image_shape, generator=generator, dtype=torch.float64).to(dtype)
    return Batch(images, torch.randint(classes, (count,), generator=generator))


def _attacked(
    module: nn.Module,
    batch: Batch,
    *,
    threat_model: str | ThreatModel = "informed",
    local_update: LocalUpdate = PLAIN,
    defence: Callable[[LocalUpdate], LocalUpdate] = UNDEFENDED,
    mode: Mode = "eval",
    seed: int = 0,
    auxiliary: Batch | None = None,
) -> UpdateObservation:
    learner, state = learner_and_state(module, mode=mode)
    return simulate_round(
        Federation(learner, state, local_update),
        batch,
        threat_model=THREAT_MODELS[threat_model] if isinstance(threat_model, str) else threat_model,
        defence=defence,
        generator=seeded(seed, "client"),
        auxiliary=auxiliary,
    )


def _reachable(value: Any, path: str, seen: set[int]) -> Iterator[tuple[str, Tensor]]:
    if id(value) in seen:
        return
    if isinstance(value, Tensor):
        yield path, value
        return
    parts = _parts(value)
    if parts:
        seen = seen | {id(value)}  # along one path only: two fields may share a tensor
    for name, part in parts.items():
        yield from _reachable(part, f"{path}.{name}" if path else name, seen)


def _parts(value: Any) -> dict[str, Any]:
    """What a value is made of: a module's whole dictionary, a function's closure and defaults, and so on."""
    if isinstance(value, nn.Module) or (dataclasses.is_dataclass(value) and not isinstance(value, type)):
        return dict(vars(value))
    if isinstance(value, Mapping):
        return {str(key): part for key, part in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return {str(index): part for index, part in enumerate(value)}
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    if isinstance(value, types.FunctionType):
        cells = [cell.cell_contents for cell in value.__closure__ or ()]
        return {"closure": cells, "defaults": value.__defaults__, "dictionary": vars(value)}
    return {}


def _bits(*values: Any) -> dict[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for index, value in enumerate(values):
        for path, tensor in _reachable(value, str(index), set()):
            content = b"" if tensor.is_meta else tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
            found[path] = (tensor.dtype, tuple(tensor.shape), tensor.requires_grad, bytes(content))
        if isinstance(value, nn.Module):
            flags = [(name, layer.training, len(layer._forward_hooks)) for name, layer in value.named_modules()]
            found[f"{index} flags"] = tuple(flags)
    return found
