"""Who runs cases: this process, or several."""

from leakgauge.audit.executors.base import Executor
from leakgauge.audit.executors.in_process import InProcess
from leakgauge.audit.executors.processes import Processes, executor_for
