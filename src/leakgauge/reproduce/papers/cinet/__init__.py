"""Zhang et al. 2023, CI-Net: its tables, what it is worth beside pixels, and the attacks on generators beside it."""
