"""What is attacked: simulated updates, recorded updates, published encodings."""

from leakgauge.audit.sources.base import Source
from leakgauge.audit.sources.encodings import PublishedEncodings
from leakgauge.audit.sources.recorded import RecordedUpdate
from leakgauge.audit.sources.simulated import SimulatedClient, SimulatedUpdate
