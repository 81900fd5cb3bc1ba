"""`python benchmarks/peers`: see compare.py."""

from __future__ import annotations

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parent.parent)  # the folder that `peers` is in, not that of its files
    from peers.compare import main

    sys.exit(main())
