"""Fail a build when a private example leaks, or when that cannot be told; as `leakgauge audit --fail-above leaked=0`.

python examples/gate_a_pipeline.py [--std 0.1] [--steps 600]
"""

import argparse
import sys

from leakgauge.audit.execute import execute
from leakgauge.audit.plan import AuditPlan, prepare
from leakgauge.errors import Inconclusive, LeakFound


def main(std: float, steps: int) -> tuple[int, str]:
    """The exit code, and what is to be said with it."""
    plan = AuditPlan(defences=(f"clipping:max_norm=1+gaussian_noise:std={std}",), steps=steps, batch_size=1)
    result = execute(prepare(plan), out=None)
    try:
        result.check({"leaked": 0})
    except LeakFound as error:
        return 1, str(error)
    except Inconclusive as error:
        return 3, str(error)
    return 0, "nothing leaked"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--std", type=float, default=0.1)
    parser.add_argument("--steps", type=int, default=600)
    options = parser.parse_args()
    code, said = main(options.std, options.steps)
    print(said)
    sys.exit(code)
