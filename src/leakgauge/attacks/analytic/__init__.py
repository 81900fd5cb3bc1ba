"""What linear layers give away: exact recoveries, and batches unmixed by the statistics of images."""

from leakgauge.attacks.analytic.fully_connected import FullyConnected, read_layers
from leakgauge.attacks.analytic.independent_components import IndependentComponents
from leakgauge.attacks.analytic.linear_batches import LinearBatches, read_features
from leakgauge.attacks.analytic.linear_layer import LinearLayer
from leakgauge.attacks.analytic.patch_embedding import PatchEmbedding
