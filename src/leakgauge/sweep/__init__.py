"""Many audits from one grid: planned, tried, run, watched from elsewhere, listed and compared."""

from leakgauge.sweep.compare import PairedDifference, compare_stores
from leakgauge.sweep.dry_run import Forecasts, dry_run
from leakgauge.sweep.grid import SweepGrid, read_grid
from leakgauge.sweep.results import result_rows
from leakgauge.sweep.run import SweepProgress, run_sweep
from leakgauge.sweep.status import SweepStatus, status_of
