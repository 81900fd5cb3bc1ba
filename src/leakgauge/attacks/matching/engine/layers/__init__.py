"""What each kind of layer does in the four sweeps of the tangent route.

For a layer y = f(x, w) and a loss L, with gx, gy, gw its derivatives in x, y and w, the sweeps are

    value        y  = f(x, w)
    cotangent    gx = (df/dx)^T gy,  gw = (df/dw)^T gy
    tangent      dy = df/dx dx + df/dw dw,  along dx of the input and dw of the parameters
    curvature    dgx, dgw: the derivative of the cotangent sweep along dx, dw and dgy

``None`` stands for a tangent that is zero. The first return of ``value`` and ``tangent`` is the result, the second what
later sweeps need to remember. Given ``frozen``, the memory of an earlier sweep, the value sweep reuses its switches
(which ReLU is open, which pixel a pool chose): the difference of two such sweeps is free of the jumps that make plain
differences useless on ReLU networks.
"""

from leakgauge.attacks.matching.engine.layers.activations import Rectifier, Smooth
from leakgauge.attacks.matching.engine.layers.affine import Affine, Convolution, Linear
from leakgauge.attacks.matching.engine.layers.base import Asked, Gradients, Layer, LayerPoint, Maybe, Motion, add_maybe
from leakgauge.attacks.matching.engine.layers.normalisation import ChannelAffine, EvalNorm
from leakgauge.attacks.matching.engine.layers.statistics import GroupedNorm
from leakgauge.attacks.matching.engine.layers.structure import (
    Added,
    Joined,
    LinearMap,
    MaxPool,
    Permuted,
    Reshaped,
    Scaled,
    Shifted,
)
