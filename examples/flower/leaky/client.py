"""The client: its own training, and before anything leaves it LeakGauge's defence and gate."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.typing import ClientAppCallable

from leakgauge.integrations.flower import DefenceMod, LeakGate
from leaky.task import declared, model, private_batch, train


def partition(context: Context) -> int:
    return int(context.node_config["partition-id"])


def client_app(defence: str = "none", gate: str = "off", seconds: float = 20.0) -> ClientApp:
    """With settings of the run, if it has any, in place of these."""

    def gated(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        action = str(context.run_config.get("gate", gate))
        if action == "off":
            return call_next(message, context)
        known = declared(str(context.run_config.get("defence", defence)))
        limits = {"identification": 0.2}
        mod = LeakGate(known, model, lambda _, own: private_batch(partition(own)), limits, action, seconds)
        return mod(message, context, call_next)

    def defended(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
        chosen = str(context.run_config.get("defence", defence))
        mod = DefenceMod.of(model(), chosen, local_update=declared(chosen).local_update)
        return mod(message, context, call_next)

    app = ClientApp(mods=[gated, defended])  # the first sees what the last has done

    @app.train()
    def train_once(message: Message, context: Context) -> Message:
        batch = private_batch(partition(context))
        after = train(message.content["arrays"].to_torch_state_dict(), batch)
        metrics = MetricRecord({"num-examples": len(batch), "partition-id": partition(context)})
        return Message(RecordDict({"arrays": ArrayRecord(after), "metrics": metrics}), reply_to=message)

    return app


app = client_app()
