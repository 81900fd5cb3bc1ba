"""Flower: any defence as a client mod, a gate before an update leaves, and a strategy that records what arrives."""

try:
    import flwr
except ImportError as error:
    raise ImportError(
        "leakgauge.integrations.flower needs Flower; install it with `pip install leakgauge[flower]`."
    ) from error

from leakgauge.integrations.flower.declared import DeclaredClient
from leakgauge.integrations.flower.defence_mod import DefenceMod
from leakgauge.integrations.flower.leak_gate import LeakGate
from leakgauge.integrations.flower.recording import Recording, RoundAudit
