"""Who runs cases: this process, several, or those of a cluster."""

from leakgauge.audit.executors.base import Executor, Pack
from leakgauge.audit.executors.in_process import InProcess
from leakgauge.audit.executors.processes import Processes, cores
from leakgauge.audit.executors.ray_cluster import RayCluster


def executor_for(jobs: int | None, ray: str | None = None) -> Executor:
    """So many cases at once from the start; without a number one per core, when it pays. Or a cluster's cores."""
    if ray is not None:
        return RayCluster(ray, jobs)
    return Processes(cores()) if jobs is None else Processes(jobs, 0.0)
