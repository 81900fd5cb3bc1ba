"""Other ways to read a recorded round, a file for each kind; `READINGS` is where a new one is named."""

from collections.abc import Mapping

from leakgauge.audit.readings.base import ReadingRule, RoundReading, Seen, spell_client
from leakgauge.audit.readings.batch import read_count, read_labels, read_order, read_truth
from leakgauge.audit.readings.direction import read_direction
from leakgauge.audit.readings.loss import read_loss
from leakgauge.audit.readings.mode import read_mode
from leakgauge.audit.readings.noise import read_noise, read_transport
from leakgauge.audit.readings.normalisation import read_normalisation
from leakgauge.audit.readings.optimiser import read_optimiser, read_steps, read_weight_decay, rescale

READINGS: Mapping[str, ReadingRule] = {
    "direction": read_direction,
    "mode": read_mode,
    "normalisation": read_normalisation,
    "optimiser": read_optimiser,
    "weight decay": read_weight_decay,
    "steps": read_steps,
    "loss": read_loss,
    "labels": read_labels,
    "order": read_order,
    "examples": read_count,
    "transport": read_transport,
    "noise": read_noise,
    "truth": read_truth,
}
"""By the kind of what is otherwise; of each kind one at most."""
