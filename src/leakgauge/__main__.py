"""``python -m leakgauge``."""

from leakgauge.cli import main

if __name__ == "__main__":
    main()
