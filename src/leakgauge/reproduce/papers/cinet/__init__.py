"""Zhang et al. 2023, CI-Net: its tables, what it is worth beside pixels, and the attacks on generators beside it."""

from leakgauge.reproduce.papers.cinet import comparison, distinct, gias, tables

TABLES = (*tables.TABLES, *comparison.TABLES, *distinct.TABLES, *gias.TABLES)
