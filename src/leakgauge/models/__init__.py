"""The catalogue of victim models: each is a frozen configuration that, called, builds a plain ``nn.Module``."""

from leakgauge.models.base import ACTIVATIONS, ModelFactory, Normalisation, Normalise, Padding, build
from leakgauge.models.compact import Compact
from leakgauge.models.convnet import ConvNet
from leakgauge.models.lenet import LeNet, lenet_zhu
from leakgauge.models.lenet5 import LeNet5
from leakgauge.models.mlp import MLP, fcn3
from leakgauge.models.named_input import NamedInput
from leakgauge.models.normalised import NORMALISATIONS, Normalised
from leakgauge.models.plain import Plain
from leakgauge.models.precode import Precode
from leakgauge.models.resnet import ResNet, resnet20_4
from leakgauge.models.vgg import VGG
