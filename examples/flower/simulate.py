"""Two clients and a server in one process tree; the server records both and attacks what it recorded.

python examples/flower/simulate.py [--defence clipping:max_norm=1+gaussian_noise:std=0.01] [--gate withhold]
"""

import argparse

from leakgauge.integrations.offline import stay_offline

stay_offline()  # before Flower is imported, which decides then whether it reports

from flwr.simulation import run_simulation
from leaky.client import client_app
from leaky.server import server_app


def main(folder: str, defence: str, gate: str, seconds: float) -> None:
    run_simulation(
        server_app(folder, defence, seconds=seconds),
        client_app(defence, gate, seconds),
        num_supernodes=2,
        # A Ray of its own, and not one that happens to run on this machine.
        backend_config={"init_args": {"address": "local"}, "client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="rounds")
    parser.add_argument("--defence", default="none")
    parser.add_argument("--gate", default="off", choices=["off", "log", "warn", "withhold"])
    parser.add_argument("--seconds", type=float, default=20.0, help="CPU time of each audit")
    options = parser.parse_args()
    main(options.out, options.defence, options.gate, options.seconds)
