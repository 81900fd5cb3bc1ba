"""Fail a build when an update leaks more than it may; the same as `leakgauge audit --fail-above identification=0.5`.

python examples/gate_a_pipeline.py [--std 0.1] [--steps 600]
"""

import argparse
import sys

from leakgauge.audit.execute import execute
from leakgauge.audit.plan import AuditPlan, prepare


def main(std: float, steps: int) -> list[str]:
    """A sentence for each limit that is exceeded."""
    plan = AuditPlan(defences=(f"clipping:max_norm=1+gaussian_noise:std={std}",), steps=steps, batch_size=1)
    prepared = prepare(plan)
    result = execute(prepared, out=None)
    return result.exceeding({"identification": 0.5})


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--std", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    exceeded = main(options.std, options.steps)
    print("\n".join(exceeded) or "within the limit")
    sys.exit(1 if exceeded else 0)
