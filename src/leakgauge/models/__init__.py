"""The catalogue of victim models: each is a frozen configuration that, called, builds a plain ``nn.Module``."""

from leakgauge.models.base import ACTIVATIONS, ModelFactory, Normalisation, Normalise, Padding, build
from leakgauge.models.equal_width import Compact, LeNet, Plain, lenet_zhu
from leakgauge.models.mlp import MLP, fcn3
from leakgauge.models.pooled import VGG, ConvNet, LeNet5
from leakgauge.models.precode import Precode
from leakgauge.models.resnet import ResNet, resnet20_4
