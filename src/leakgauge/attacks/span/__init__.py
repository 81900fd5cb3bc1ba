"""What the span of a layer's gradient gives away."""

from leakgauge.attacks.span.matching import SpanMatching
