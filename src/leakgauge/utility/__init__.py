"""What a model is worth: training and accuracy."""

from leakgauge.utility.train import Training, accuracy, train

__all__ = ["Training", "accuracy", "train"]
