"""What the page makes of InstaHide's claim beside noise is read off the rows alone."""

from __future__ import annotations

import pytest

from instahide_answers import judge_noise


def rows(hidden: list[float], noisy: list[float], error: float = 0.01):
    """Accuracies at shares of 0.1, 0.5 and 0.9."""
    named = {"InstaHide": hidden, "Laplace noise": noisy}
    return {
        "rows": [
            {"label": f"{name}, alpha={alpha}", "ours": {"accuracy": {"mean": mean, "standard_error": error}}}
            for name, means in named.items()
            for alpha, mean in zip((0.1, 0.5, 0.9), means, strict=True)
        ]
    }


@pytest.mark.parametrize(
    ("hidden", "noisy", "said"),
    [
        ([0.5, 0.4, 0.5], [0.6, 0.5, 0.2], ["is confirmed", "loses 0.0 points and noise 40.0", "norm costs less"]),
        ([0.5, 0.4, 0.5], [0.6, 0.5, 0.49], ["is not confirmed", "ahead at alpha = none"]),
        ([0.5, 0.5, 0.5], [0.5, 0.4, 0.2], ["is confirmed", "does not cost less"]),
        ([0.6, 0.4, 0.3], [0.5, 0.4, 0.25], ["is not confirmed"]),
    ],
)  # fmt: skip
def test_the_claim_stands_only_where_noise_loses_more_and_is_behind_beyond_its_error(hidden, noisy, said):
    told = judge_noise(rows(hidden, noisy))
    assert all(words in told for words in said)
