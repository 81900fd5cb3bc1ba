"""Parts of a network that are affine, solved as exactly as float64 allows."""

from __future__ import annotations

import pytest
import torch

from leakgauge.attacks.analytic.affine_parts import AffineMap, conjugate_gradients
from leakgauge.randomness import seeded


@pytest.mark.parametrize("seed", range(20))
def test_a_map_of_unlike_scales_beside_a_large_offset_is_solved_to_the_last_digits(seed):
    # As a standardisation of columns with ranges of 90 and of 1 is: short directions drown in the offset's rounding.
    scales = torch.cat([torch.full((7,), 1 / 26.0), torch.full((5,), 10.0)]).double()
    offset = 40 * torch.rand(12, generator=seeded(seed), dtype=torch.float64)
    whole = AffineMap(lambda x: x * scales + offset, lambda gy: gy * scales, torch.zeros(12, dtype=torch.float64))
    truth = 90 * torch.rand(12, generator=seeded(seed, "truth"), dtype=torch.float64)
    torch.testing.assert_close(whole.solve(whole.along(truth)), truth, rtol=1e-9, atol=1e-9)
    assert whole.is_one_to_one()


def test_what_a_singular_map_cannot_reach_is_left_at_the_shortest_answer():
    scales = torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64)
    found = conjugate_gradients(lambda x: scales * x, torch.tensor([2.0, 3.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([1.0, 3.0, 0.0], dtype=torch.float64))
