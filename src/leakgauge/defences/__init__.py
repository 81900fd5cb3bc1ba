"""What a client can do about what its update gives away: one file per defence."""

from leakgauge.defences.base import Chain, Defence, NoDefence, chain, parts
from leakgauge.defences.clipping import Clipping
from leakgauge.defences.dpsgd import DELTA, DPSGD, epsilon, guaranteed_epsilon
from leakgauge.defences.exclude_vars import ExcludeVars
from leakgauge.defences.finished import on_finished, on_gradient
from leakgauge.defences.flower_dp import adaptive_clipping, fixed_clipping, local_dp, recomputed_epsilon
from leakgauge.defences.mixing import CrossInstaHide, InstaHide, Mixer, MixUp
from leakgauge.defences.noise import GaussianNoise, LaplaceNoise
from leakgauge.defences.percentile_privacy import PercentilePrivacy
from leakgauge.defences.pruning import Pruning
from leakgauge.defences.secure_aggregation import SecureAggregation
from leakgauge.defences.soteria import Soteria
from leakgauge.defences.svt_privacy import SVTPrivacy
