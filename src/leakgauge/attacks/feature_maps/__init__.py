"""Feature maps out of the span of overlapping patches, and images out of feature maps."""

from leakgauge.attacks.feature_maps.attack import FeatureMaps
