"""The server: FedAvg, which also keeps what it is sent and sees what it gives away."""

from pathlib import Path

from flwr.app import ArrayRecord, Context, Message
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from leakgauge.integrations.flower import Recording, RoundAudit
from leakgauge.types import Batch
from leaky.task import declared, model, private_batch


def truth(reply: Message) -> Batch:
    """Known in a simulation alone: by the number that a client of this example sends along."""
    return private_batch(int(reply.content["metrics"]["partition-id"]))


def server_app(folder: str = "rounds", defence: str = "none", rounds: int = 1, seconds: float = 20.0) -> ServerApp:
    """With settings of the run, if it has any, in place of these."""
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        said = context.run_config
        strategy = Recording(
            FedAvg(fraction_evaluate=0.0),
            Path(str(said.get("folder", folder))),
            declared(str(said.get("defence", defence))),
            audit=RoundAudit(model, truth, float(said.get("audit-seconds", seconds))),
        )
        arrays = ArrayRecord(model().state_dict())
        strategy.start(grid, arrays, num_rounds=int(said.get("rounds", rounds)))

    return app


app = server_app()
