"""What Figure 4 of Huang et al. 2020 claims of InstaHide beside noise of the same norm, and what its rows say."""

from __future__ import annotations

import re

from readings import Result

_ROW = re.compile(r"(InstaHide|Laplace noise), alpha=([\d.]+)$")


def judge_noise(result: Result) -> str:
    """Who keeps more accuracy at each share, told apart by two standard errors of the difference."""
    found = {
        (match[1], float(match[2])): row["ours"]["accuracy"]
        for row in result["rows"]
        if (match := _ROW.match(row["label"]))
    }
    alphas = sorted({alpha for _, alpha in found})
    ahead: dict[str, list[float]] = {"InstaHide": [], "Laplace noise": []}
    for alpha in alphas:
        hidden, noisy = (found[name, alpha] for name in ahead)
        error = (hidden["standard_error"] ** 2 + noisy["standard_error"] ** 2) ** 0.5
        if abs(gap := hidden["mean"] - noisy["mean"]) > 2 * error:
            ahead["InstaHide" if gap > 0 else "Laplace noise"].append(alpha)
    falls = {name: 100 * (found[name, alphas[0]]["mean"] - found[name, alphas[-1]]["mean"]) for name in ahead}
    above, below = ([alpha for alpha in alphas if (alpha > 0.5) is side] for side in (True, False))
    kept = set(above) <= set(ahead["InstaHide"]) and falls["Laplace noise"] > max(0.0, falls["InstaHide"])
    cheaper = set(below) <= set(ahead["Laplace noise"])
    shares = {name: ", ".join(f"{alpha:g}" for alpha in own) or "none" for name, own in ahead.items()}
    drawn, price = "confirmed" if kept else "not confirmed", "costs less" if cheaper else "does not cost less"
    lost = " points and noise ".join(f"{fall:.1f}" for fall in falls.values())
    return (
        f"The paper's claim, that InstaHide keeps its accuracy where noise of the same norm loses it, is {drawn} as it "
        f"is drawn: from alpha = {alphas[0]:g} to {alphas[-1]:g} InstaHide loses {lost}; InstaHide is ahead at alpha = "
        f"{shares['InstaHide']}, noise at {shares['Laplace noise']}. But a mixture with its shares exchanged is the "
        "same mixture: alpha above a half hides no more than below it, and up to a half noise of the same norm "
        f"{price}."
    )
