"""Label restoration: one file per rule."""

from leakgauge.attacks.labels.idlg import IDLG

__all__ = ["IDLG"]
