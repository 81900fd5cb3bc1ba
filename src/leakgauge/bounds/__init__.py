"""Beside what an attack found, what any attacker could find at most."""

from leakgauge.bounds.bound import Bound, bound_of, gaussian_bound, no_bound, read_bounds
from leakgauge.bounds.fisher import ErrorBound, error_bound
from leakgauge.bounds.guarantees import ConcentratedGuarantee, GaussianGuarantee, Guarantee
