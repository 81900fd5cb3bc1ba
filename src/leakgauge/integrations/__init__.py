"""LeakGauge inside the frameworks that people train with; each needs its own extra, and none is imported unasked."""
