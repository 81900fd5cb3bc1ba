"""Dishonest servers: each tampers with the model it sends, and reads what comes back [Geiping et al., 2020, app. A]."""

from leakgauge.attacks.malicious.base import MaliciousAttack
from leakgauge.attacks.malicious.binned_adapter import BinnedAdapter
from leakgauge.attacks.malicious.concatenated_input import ConcatenatedInput
from leakgauge.attacks.malicious.feature_fishing import FeatureFishing
from leakgauge.attacks.malicious.fishing import ClassFishing
from leakgauge.attacks.malicious.front_layer import FrontLayer
from leakgauge.attacks.malicious.identity_convolutions import IdentityConvolutions
from leakgauge.attacks.malicious.label_flip import LabelFlip
from leakgauge.attacks.malicious.sparse_front_layer import SparseFrontLayer
from leakgauge.attacks.malicious.trap_weights import TrapWeights
