"""How d(matching loss)/d(images) is taken: several routes to one derivative, checked against each other in float64.

Write g(x) for the candidate's update and D for the distance; v = dD/dg. Then dD/dx = d/dx <g(x), v>, and when g is a
gradient of the loss L this is also the derivative of grad_x L(params + e v, x) at e = 0. A route takes that derivative
for one gradient; what the client makes of its gradients (several local steps, defences) is the same for every route.
"""

from leakgauge.attacks.matching.differentiation.accumulated import Accumulated
from leakgauge.attacks.matching.differentiation.automatic import Automatic, Evaluator, plan_evaluation
from leakgauge.attacks.matching.differentiation.graph import DoubleBackward, FiniteDifference
from leakgauge.attacks.matching.differentiation.matcher import Linearised, Matcher, Pull, Wanted
from leakgauge.attacks.matching.differentiation.route import (
    Differentiation,
    OneByOne,
    Rows,
    RowwiseLoss,
    Together,
    stack_rows,
)
from leakgauge.attacks.matching.differentiation.sweeps import FrozenDifference, Tangent
