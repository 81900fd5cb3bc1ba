"""For each operation of torch, by its name, how it becomes steps of a network; any other is left to autograd alone."""

from leakgauge.attacks.matching.engine.rules import (
    activations,
    affine,
    arithmetic,
    attention,
    normalisation,
    pools,
    products,
    shapes,
)

RULES = {
    name: rule
    for kind in (activations, affine, arithmetic, attention, normalisation, pools, products, shapes)
    for name, rule in kind.RULES.items()
}

SMOOTH = activations.SMOOTH_NAMES | frozenset(
    {"lstm", "gru", "rnn_tanh", "log_softmax", "logsumexp", "var", "std", "linalg_vector_norm", "norm", "prod"}
)
"""Operations whose derivative does not jump, wherever they are not linear."""
