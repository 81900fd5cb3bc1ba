"""Small models run on one thread, large ones on all; the caller's setting comes back."""

from __future__ import annotations

import pytest
import torch

from leakgauge.threads import suitable_threads


@pytest.mark.parametrize(("parameters", "expected"), [(999_999, 1), (1_000_000, 3)])
def test_a_small_model_gets_one_thread_and_a_large_one_all(parameters, expected):
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with suitable_threads(parameters):
            assert torch.get_num_threads() == expected
        assert torch.get_num_threads() == 3
        with pytest.raises(KeyboardInterrupt), suitable_threads(parameters):
            raise KeyboardInterrupt
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
