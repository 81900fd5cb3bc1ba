"""The catalogue of victim models: each is a frozen configuration that, called, builds a plain ``nn.Module``."""

from leakgauge.models.base import ACTIVATIONS, ModelFactory, Normalisation, Normalise, Padding, build
from leakgauge.models.bert import BERT
from leakgauge.models.compact import Compact
from leakgauge.models.conv_mlp import ConvMLP
from leakgauge.models.convnet import ConvNet
from leakgauge.models.gpt import GPT
from leakgauge.models.language import CausalText, ClassifiedText, encode_texts, space_of_tokenizer
from leakgauge.models.lenet import LeNet, lenet_zhu
from leakgauge.models.lenet5 import LeNet5
from leakgauge.models.mlp import MLP, fcn3
from leakgauge.models.named_input import NamedInput
from leakgauge.models.normalised import NORMALISATIONS, Normalised
from leakgauge.models.plain import Plain
from leakgauge.models.precode import Precode
from leakgauge.models.quick_resnet import QuickResNet
from leakgauge.models.resnet import ResNet, resnet20_4
from leakgauge.models.transformer import TextModel
from leakgauge.models.vgg import VGG
