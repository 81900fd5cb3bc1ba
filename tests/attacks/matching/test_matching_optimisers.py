"""Optimisers against scipy's and torch's, on problems whose minimum is known."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import lsq_linear, minimize, rosen, rosen_der
from torch import Tensor

from leakgauge.attacks.matching import LBFGS, Adam, CosineDecay, SignedAdam, StepDecay
from leakgauge.attacks.matching.optimisers import CurvatureMemory
from leakgauge.errors import InvalidCase
from leakgauge.randomness import seeded

Function = Callable[[Tensor], Tensor]
BOX = (0.0, 1.0)


def evaluate(function: Function, candidates: Tensor) -> tuple[Tensor, Tensor]:
    """One value and one gradient per row."""
    leaf = candidates.detach().requires_grad_()
    values = function(leaf)
    (gradient,) = torch.autograd.grad(values.nan_to_num().sum(), leaf)
    return values.detach(), gradient.nan_to_num(0.0, 0.0, 0.0)


def path(optimiser, function: Function, start: Tensor, box=BOX, *, steps: int) -> list[Tensor]:
    """All candidates, in order."""
    state = optimiser.start(start, box)
    candidates = [state.candidate]
    for step in range(steps):
        state = optimiser.advance(state, *evaluate(function, state.candidate), step / steps)
        candidates.append(state.candidate)
        if bool(state.converged.all()):
            break
    return candidates


def minimum(optimiser, function: Function, start: Tensor, box=BOX, *, steps: int) -> Tensor:
    """The best candidate of each row."""
    visited = path(optimiser, function, start, box, steps=steps)
    with torch.no_grad():
        values = torch.stack([function(rows) for rows in visited])
    best = values.nan_to_num(nan=torch.inf).argmin(dim=0)
    return torch.stack(visited)[best, torch.arange(len(start))]


def quadratic(size: int, conditioning: float, seed: int) -> tuple[Function, Tensor, Tensor]:
    """A random convex quadratic whose free minimum lies partly outside the box, with its matrix and centre."""
    generator = seeded(seed, "quadratic")
    basis, _ = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))
    spectrum = torch.logspace(0, -np.log10(conditioning), size, dtype=torch.float64)
    matrix = basis @ torch.diag(spectrum) @ basis.T
    centre = 3 * torch.rand(size, generator=generator, dtype=torch.float64) - 1
    return (lambda x: ((x - centre) @ matrix * (x - centre)).sum(dim=1) / 2), matrix, centre


@settings(deadline=None, max_examples=12)
@given(size=st.integers(1, 20), conditioning=st.floats(1, 1e3), seed=st.integers(0, 999))
@example(size=2, conditioning=48.0, seed=105)
@example(size=3, conditioning=809.0, seed=470)  # once crept along a bound, misled by the curvature across it
def test_lbfgs_finds_the_minimum_of_a_convex_quadratic_on_a_box_that_scipy_finds(size, conditioning, seed):
    function, matrix, centre = quadratic(size, conditioning, seed)
    start = torch.rand(2, size, generator=seeded(seed, "start"), dtype=torch.float64)
    # By active sets, which end at the minimum; scipy's own L-BFGS-B has stopped short of it.
    root = np.linalg.cholesky(matrix.numpy()).T
    reference = lsq_linear(root, root @ centre.numpy(), BOX, method="bvls", tol=1e-14)
    found = minimum(LBFGS(), function, start, steps=300)
    assert bool((function(found) <= reference.cost + 1e-9).all())
    np.testing.assert_allclose(found.numpy(), np.tile(reference.x, (2, 1)), atol=1e-5 * conditioning**0.5)


@pytest.mark.parametrize("size", [2, 10])
@pytest.mark.parametrize("box", [None, (-2.0, 2.0), (-1.0, 0.6)], ids=str)
def test_lbfgs_finds_the_minimum_of_rosenbrocks_valley(box, size):
    def function(x: Tensor) -> Tensor:
        return (100 * (x[:, 1:] - x[:, :-1] ** 2) ** 2 + (1 - x[:, :-1]) ** 2).sum(dim=1)

    start = torch.full((1, size), 0.5, dtype=torch.float64)
    start[0, 0] = -0.9
    reference = minimize(
        rosen,
        start[0].numpy(),
        jac=rosen_der,
        bounds=None if box is None else [box] * size,
        method="L-BFGS-B",
        options={"ftol": 1e-15, "gtol": 1e-10, "maxiter": 10_000, "maxfun": 10_000},
    )
    (found,) = minimum(LBFGS(), function, start, box, steps=800)
    np.testing.assert_allclose(found.numpy(), reference.x, atol=1e-5)


@settings(deadline=None, max_examples=12)
@given(seed=st.integers(0, 999), low=st.floats(-2, 0), width=st.floats(0.1, 2))
@pytest.mark.parametrize(
    "optimiser", [LBFGS(), Adam(0.3), SignedAdam(0.3, StepDecay())], ids=lambda o: type(o).__name__
)
def test_no_candidate_leaves_the_box(optimiser, seed, low, width):
    box = (low, low + width)
    waves = torch.randn(8, 5, generator=seeded(seed), dtype=torch.float64)
    start = box[0] + width * torch.rand(3, 5, generator=seeded(seed, "start"), dtype=torch.float64)
    for candidate in path(optimiser, lambda x: (3 * x @ waves.T).sin().sum(dim=1) + x.sum(dim=1), start, box, steps=40):
        assert box[0] <= float(candidate.min())
        assert float(candidate.max()) <= box[1]


@settings(deadline=None, max_examples=10)
@given(seed=st.integers(0, 999))
@pytest.mark.parametrize("optimiser", [LBFGS(history=4), Adam(0.1), SignedAdam(0.1)], ids=repr)
def test_restarts_together_go_where_each_goes_alone(optimiser, seed):
    waves = torch.randn(8, 5, generator=seeded(seed), dtype=torch.float64)

    def function(x: Tensor) -> Tensor:
        return 0.2 * (2 * x @ waves.T).sin().sum(dim=1) + 5 * (x - 0.4).square().sum(dim=1)

    start = torch.rand(4, 5, generator=seeded(seed, "start"), dtype=torch.float64)
    together = torch.stack(path(optimiser, function, start, steps=15))
    for row in range(4):
        alone = torch.cat(path(optimiser, function, start[row, None], steps=15))
        # Alone, a restart may stop; together, it waits where it stopped. Rounding, not the neighbours, may differ.
        torch.testing.assert_close(together[: len(alone), row], alone[: len(together)], rtol=0, atol=1e-6)


def test_restarts_that_stop_early_do_not_hold_up_the_others():
    function, _, _ = quadratic(6, 100, seed=1)
    start = torch.rand(4, 6, generator=seeded(0), dtype=torch.float64)
    goal = minimum(LBFGS(), function, start[:1], steps=400)
    start[2] = goal[0]
    found = minimum(LBFGS(), function, start, steps=400)
    torch.testing.assert_close(found, goal.expand(4, 6), rtol=0, atol=1e-6)


def test_lbfgs_candidates_may_have_any_shape():
    start = torch.rand(2, 1, 3, 4, 4, generator=seeded(0), dtype=torch.float64)
    found = minimum(LBFGS(), lambda x: (x - 0.3).square().flatten(1).sum(dim=1), start, steps=50)
    torch.testing.assert_close(found, torch.full_like(start, 0.3), rtol=0, atol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_lbfgs_survives_trial_values_that_are_not_finite(bad):
    # x - log x has its minimum at 1, and no value left of 0.05; the first move from the right lands there.
    def function(x: Tensor) -> Tensor:
        value = (x - x.clamp_min(1e-9).log()).sum(dim=1)
        return torch.where((x < 0.05).any(dim=1), torch.as_tensor(bad, dtype=x.dtype), value)

    start = torch.tensor([[0.06, 3.0], [2.9, 2.9]], dtype=torch.float64)
    for optimiser in (LBFGS(), LBFGS(first_move=10.0)):
        state = optimiser.start(start, (0.0, 3.0))
        for _ in range(200):
            state = optimiser.advance(state, *evaluate(function, state.candidate), 0.0)
        torch.testing.assert_close(state.point, torch.ones_like(start), rtol=0, atol=1e-6)


def test_a_restart_that_starts_nowhere_disturbs_no_other():
    def function(x: Tensor) -> Tensor:
        return torch.where(x[:, 0] > 0.9, torch.nan, 1.0) * (x - 0.2).square().sum(dim=1)

    start = torch.tensor([[0.95, 0.5], [0.5, 0.5]], dtype=torch.float64)
    optimiser = LBFGS()
    state = optimiser.start(start, BOX)
    for _ in range(60):
        state = optimiser.advance(state, *evaluate(function, state.candidate), 0.0)
    torch.testing.assert_close(state.point[1], torch.full((2,), 0.2, dtype=torch.float64), rtol=0, atol=1e-9)
    assert torch.equal(state.point[0], start[0])
    assert bool(state.converged.all())


def test_lbfgs_stops_at_a_stationary_point():
    start = torch.full((1, 3), 0.3, dtype=torch.float64)
    assert len(path(LBFGS(), lambda x: (x - 0.3).square().sum(dim=1), start, steps=50)) == 2


def test_every_accepted_value_of_lbfgs_is_lower_than_the_last():
    function, _, _ = quadratic(12, 1e3, seed=3)
    optimiser = LBFGS()
    state = optimiser.start(torch.rand(3, 12, generator=seeded(0), dtype=torch.float64), BOX)
    for _ in range(80):
        later = optimiser.advance(state, *evaluate(function, state.candidate), 0.0)
        assert bool((later.value <= state.value).all())
        state = later


def dense_inverse(moves: list[Tensor], changes: list[Tensor]) -> Tensor:
    """The inverse Hessian of BFGS as its update is written in every textbook [Nocedal & Wright, 2006, Eq. 6.17]."""
    identity = torch.eye(len(moves[0]), dtype=torch.float64)
    inverse = identity * (moves[-1] @ changes[-1]) / (changes[-1] @ changes[-1])
    for move, change in zip(moves, changes, strict=True):
        left = identity - torch.outer(move, change) / (move @ change)
        inverse = left @ inverse @ left.T + torch.outer(move, move) / (move @ change)
    return inverse


@settings(deadline=None, max_examples=20)
@given(
    history=st.integers(1, 5),
    pairs=st.lists(st.integers(0, 8), min_size=1, max_size=3),
    forgotten=st.integers(0, 8),
    seed=st.integers(0, 99),
)
def test_the_curvature_memory_is_the_bfgs_inverse_of_its_last_pairs(history, pairs, forgotten, seed):
    size, restarts = 6, len(pairs)
    generator = seeded(seed)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    hessian = root @ root.T + torch.eye(size, dtype=torch.float64)
    memory = CurvatureMemory.empty(history, torch.zeros(restarts, size, dtype=torch.float64))

    def learn(memory: CurvatureMemory, where: Tensor) -> tuple[CurvatureMemory, Tensor]:
        moves = torch.randn(restarts, size, generator=generator, dtype=torch.float64)
        return memory.remember(moves, moves @ hessian, where=where), moves

    everywhere = torch.ones(restarts, dtype=torch.bool)
    for _ in range(forgotten):
        memory, _ = learn(memory, everywhere)
    memory = memory.forget(everywhere)
    written: list[list[Tensor]] = [[] for _ in pairs]
    for step in range(max(pairs)):
        where = torch.tensor([step < count for count in pairs])
        memory, moves = learn(memory, where)
        for row in where.nonzero().flatten().tolist():
            written[row].append(moves[row])
    vector = torch.randn(restarts, size, generator=generator, dtype=torch.float64)
    guess = torch.rand(restarts, generator=generator, dtype=torch.float64)
    for row, solution in enumerate(memory.solve(vector, guess)):
        last = written[row][-history:]
        inverse = (
            dense_inverse(last, [move @ hessian for move in last]) if last else guess[row] * torch.eye(size).double()
        )
        torch.testing.assert_close(solution, inverse @ vector[row], rtol=1e-7, atol=1e-9)


def test_a_pair_without_positive_curvature_is_not_remembered():
    move, change = (
        torch.ones(2, 3, dtype=torch.float64),
        torch.tensor([[-1.0], [1.0]], dtype=torch.float64).expand(2, 3),
    )
    memory = CurvatureMemory.empty(4, move).remember(move, change, where=torch.tensor([True, True]))
    assert memory.filled.tolist() == [0, 1]


@pytest.mark.parametrize("box", [None, BOX], ids=str)
@pytest.mark.parametrize("schedule", [CosineDecay(), StepDecay()], ids=repr)
@pytest.mark.parametrize(
    ("optimiser", "fed"),
    [(Adam, lambda gradient: gradient), (SignedAdam, torch.sign)],
    ids=["adam", "signed adam is adam fed with signs"],
)
def test_adam_is_torchs_adam_step_by_step(optimiser, fed, schedule, box):
    steps, rate = 40, 0.07
    ours = optimiser(rate, schedule)
    theirs = torch.rand(2, 3, 4, generator=seeded(0), dtype=torch.float64).requires_grad_()
    reference = torch.optim.Adam([theirs], lr=rate)
    state = ours.start(theirs.detach().clone(), box)
    for step in range(steps):
        gradient = torch.randn(2, 3, 4, generator=seeded(step), dtype=torch.float64)
        reference.param_groups[0]["lr"] = rate * schedule(step / steps)
        theirs.grad = fed(gradient)
        reference.step()
        if box is not None:
            with torch.no_grad():
                theirs.clamp_(*box)
        state = ours.advance(state, torch.zeros(2), gradient, step / steps)
        torch.testing.assert_close(state.candidate, theirs.detach(), rtol=1e-10, atol=1e-12)
        assert not bool(state.converged.any())


def test_step_decay_falls_tenfold_at_three_eighths_five_eighths_and_seven_eighths():
    # Geiping et al. 2020, appendix C.
    decay = StepDecay()
    values = [decay(fraction) for fraction in (0, 0.374, 0.375, 0.624, 0.625, 0.874, 0.875, 1)]
    assert values == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
    assert StepDecay(at=(0.5,), factor=0.3)(0.7) == 0.3


def test_cosine_decay_falls_from_one_through_a_half_to_zero():
    values = [CosineDecay()(fraction) for fraction in (0, 1 / 3, 1 / 2, 2 / 3, 1)]
    assert values == pytest.approx([1, 0.75, 0.5, 0.25, 0], abs=1e-15)


def test_lbfgs_needs_a_history():
    with pytest.raises(InvalidCase, match="history >= 1"):
        LBFGS(history=0)


@pytest.mark.parametrize("optimiser", [Adam(0.1), SignedAdam(0.1)], ids=repr)
def test_adam_rests_when_its_rate_has_run_out_and_not_before(optimiser):
    function, _, _ = quadratic(4, 10, seed=0)
    start = torch.rand(2, 4, generator=seeded(0), dtype=torch.float64)
    state = optimiser.start(start, BOX)
    early = optimiser.advance(state, *evaluate(function, start), 0.5)
    late = optimiser.advance(state, *evaluate(function, start), 1.0)
    assert not bool(early.converged.any())
    assert bool(late.converged.all())
