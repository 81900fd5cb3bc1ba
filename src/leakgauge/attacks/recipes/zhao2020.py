"""iDLG [Zhao et al., 2020]."""

from __future__ import annotations

from dataclasses import replace

from leakgauge.attacks.labels.idlg import IDLG
from leakgauge.attacks.matching import GradientMatching
from leakgauge.attacks.recipes.zhu2019 import dlg


def idlg(steps: int | None = 300, restarts: int = 1, seconds: float | None = None) -> GradientMatching:
    """`dlg` with the label read off the update [Zhao et al., 2020]; Geiping et al. [2020] give it 8 to 16 restarts."""
    return replace(dlg(steps, restarts, seconds), labels=IDLG())
