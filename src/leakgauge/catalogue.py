"""Every part by name. Adding one means its file and one line here; the contract tests then run on it unasked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from leakgauge.attacks.adaptive import adaptive
from leakgauge.attacks.analytic import (
    FullyConnected,
    IndependentComponents,
    LinearBatches,
    LinearLayer,
    PatchEmbedding,
)
from leakgauge.attacks.encodings.clustering.attack import Clustering
from leakgauge.attacks.encodings.clustering.published import PublishedRecipe
from leakgauge.attacks.encodings.search.removal import AlignedRemoval, PublicRemoval
from leakgauge.attacks.labels import (
    IDLG,
    ILRG,
    LLG,
    RLG,
    ZLG,
    Alternating,
    ClassGradients,
    ClassPrior,
    HeadMatching,
    MinRow,
    SoftLabel,
)
from leakgauge.attacks.labels import best as best_labels
from leakgauge.attacks.malicious import (
    BinnedAdapter,
    ClassFishing,
    ConcatenatedInput,
    FeatureFishing,
    FrontLayer,
    IdentityConvolutions,
    LabelFlip,
    SparseFrontLayer,
    TrapWeights,
)
from leakgauge.attacks.recipes import (
    best,
    ci_net,
    dlg,
    epoch_copies,
    exact,
    feature_maps,
    gias,
    gias_on_noise,
    gifd,
    grad_attack,
    grad_inversion,
    idlg,
    inverting_gradients,
    inverting_gradients_l2,
    inverting_gradients_lbfgs,
    inverting_gradients_no_tv,
    lamp,
    lamp_l2,
    local_step_search,
    midway,
    quasi_newton,
    quasi_newton_smooth,
    span_matching,
    stepwise,
    surrogate,
    tab_leak,
    tag,
)
from leakgauge.attacks.text import TokenGuess, TokenSpans
from leakgauge.data import BreastCancer, Cifar10, Cifar100, Csv, Diabetes, Digits, ImageFolder, Mnist, Npz, Photos, Text
from leakgauge.defences import (
    DPSGD,
    Clipping,
    CrossInstaHide,
    ExcludeVars,
    GaussianNoise,
    InstaHide,
    LaplaceNoise,
    MixUp,
    NoDefence,
    PercentilePrivacy,
    Pruning,
    SecureAggregation,
    Soteria,
    SVTPrivacy,
    adaptive_clipping,
    fixed_clipping,
    local_dp,
)
from leakgauge.encodings import CrossDataset, InsideDataset, Mixup
from leakgauge.errors import InvalidCase
from leakgauge.metrics import (
    FSIM,
    LPIPSVGG,
    PSNR,
    SSIM,
    AffinePSNR,
    CellsRight,
    ExactText,
    Identification,
    Kind,
    LabelCounts,
    LabelExistence,
    LabelRecall,
    LPIPSAlex,
    Metric,
    PublicFound,
    Rouge1,
    Rouge2,
    RougeL,
    ShiftedIdentification,
    TokenRecall,
    find_weights,
)
from leakgauge.models import (
    BERT,
    GPT,
    MLP,
    VGG,
    Compact,
    ConvMLP,
    ConvNet,
    LeNet,
    LeNet5,
    Plain,
    Precode,
    QuickResNet,
    ResNet,
    fcn3,
    resnet20_4,
)
from leakgauge.protocol import THREAT_MODELS, FedSGD, fedavg
from leakgauge.protocol.client_parts import Augmentation, Sharing, Transport

Shelf = Mapping[str, Callable[..., Any]]

ATTACKS: Shelf = {
    "linear_layer": LinearLayer,
    "fully_connected": FullyConnected,
    "linear_batches": LinearBatches,
    "independent_components": IndependentComponents,
    "patch_embedding": PatchEmbedding,
    "token_spans": TokenSpans,
    "tag": tag,
    "lamp": lamp,
    "lamp_l2": lamp_l2,
    "token_guess": TokenGuess,
    "best": best,
    "exact": exact,
    "span_matching": span_matching,
    "feature_maps": feature_maps,
    "adaptive": adaptive,
    "quasi_newton": quasi_newton,
    "quasi_newton_smooth": quasi_newton_smooth,
    "tab_leak": tab_leak,
    "inverting_gradients": inverting_gradients,
    "inverting_gradients_l2": inverting_gradients_l2,
    "inverting_gradients_no_tv": inverting_gradients_no_tv,
    "inverting_gradients_lbfgs": inverting_gradients_lbfgs,
    "dlg": dlg,
    "idlg": idlg,
    "grad_inversion": grad_inversion,
    "grad_attack": grad_attack,
    "stepwise": stepwise,
    "ci_net": ci_net,
    "gias": gias,
    "gias_on_noise": gias_on_noise,
    "gifd": gifd,
    "surrogate": surrogate,
    "midway": midway,
    "epoch_copies": epoch_copies,
    "local_step_search": local_step_search,
    "best_labels": best_labels,
    "head_matching": HeadMatching,
    "alternating": Alternating,
    "ilrg": ILRG,
    "idlg_labels": IDLG,
    "min_row": MinRow,
    "llg": LLG,
    "rlg": RLG,
    "zlg": ZLG,
    "soft_label": SoftLabel,
    "class_gradients": ClassGradients,
    "class_prior": ClassPrior,
    "front_layer": FrontLayer,
    "sparse_front_layer": SparseFrontLayer,
    "trap_weights": TrapWeights,
    "identity_convolutions": IdentityConvolutions,
    "concatenated_input": ConcatenatedInput,
    "label_flip": LabelFlip,
    "class_fishing": ClassFishing,
    "feature_fishing": FeatureFishing,
    "binned_adapter": BinnedAdapter,
}

ENCODING_ATTACKS: Shelf = {
    "clustering": Clustering,
    "published": PublishedRecipe,
    "public": PublicRemoval,
    "aligned": AlignedRemoval,
}
"""``clustering`` and ``published`` restore the private images from many encodings and their labels; ``public`` names
the public images in each encoding and takes them out, ``aligned`` does so where they were cropped and mirrored."""

DEFENCES: Shelf = {
    "none": NoDefence,
    "pruning": Pruning,
    "gaussian_noise": GaussianNoise,
    "laplace_noise": LaplaceNoise,
    "clipping": Clipping,
    "mixup": MixUp,
    "instahide": InstaHide,
    "instahide_cross": CrossInstaHide,
    "soteria": Soteria,
    "dpsgd": DPSGD,
    "secure_aggregation": SecureAggregation,
    "percentile_privacy": PercentilePrivacy,
    "svt_privacy": SVTPrivacy,
    "exclude_vars": ExcludeVars,
    "fixed_clipping": fixed_clipping,
    "adaptive_clipping": adaptive_clipping,
    "local_dp": local_dp,
}

SCHEMES: Shelf = {"mixup": Mixup, "inside": InsideDataset, "cross": CrossDataset}

LOCAL_UPDATES: Shelf = {"fedsgd": FedSGD, "fedavg": fedavg}

CLIENT_PARTS: Shelf = {"augmentation": Augmentation, "sharing": Sharing, "transport": Transport}
"""What a client may do besides its local steps; written after them, joined by ``+``."""

MODELS: Shelf = {
    "bert": BERT,
    "compact": Compact,
    "conv_mlp": ConvMLP,
    "convnet": ConvNet,
    "gpt": GPT,
    "lenet": LeNet,
    "lenet5": LeNet5,
    "mlp": MLP,
    "fcn3": fcn3,
    "plain": Plain,
    "precode": Precode,
    "resnet": ResNet,
    "resnet20_4": resnet20_4,
    "quick_resnet": QuickResNet,
    "vgg": VGG,
}

LANGUAGE_MODELS = ("gpt",)
"""Those that predict the next token."""

DATASETS: Shelf = {
    "photos": Photos,
    "digits": Digits,
    "cifar10": Cifar10,
    "cifar100": Cifar100,
    "mnist": Mnist,
    "image_folder": ImageFolder,
    "npz": Npz,
    "breast_cancer": BreastCancer,
    "diabetes": Diabetes,
    "csv": Csv,
    "text": Text,
}

# In the order in which they are shown.
METRICS: dict[str, type[Metric]] = {
    "identification": Identification,
    "identification_shifted": ShiftedIdentification,
    "cells_right": CellsRight,
    "token_recall": TokenRecall,
    "exact_text": ExactText,
    "rouge_1": Rouge1,
    "rouge_2": Rouge2,
    "rouge_l": RougeL,
    "psnr": PSNR,
    "psnr_affine": AffinePSNR,
    "ssim": SSIM,
    "fsim": FSIM,
    "lpips_alex": LPIPSAlex,
    "lpips_vgg": LPIPSVGG,
    "label_recall": LabelRecall,
    "label_existence": LabelExistence,
    "label_counts": LabelCounts,
    "public_found": PublicFound,
}

CATALOGUE: Mapping[str, Shelf] = {
    "attacks": ATTACKS,
    "encoding_attacks": ENCODING_ATTACKS,
    "defences": DEFENCES,
    "schemes": SCHEMES,
    "local_updates": LOCAL_UPDATES,
    "client_parts": CLIENT_PARTS,
    "models": MODELS,
    "datasets": DATASETS,
    "metrics": METRICS,
    "threat_models": {name: (lambda model=model: model) for name, model in THREAT_MODELS.items()},
}


def describe_metric(name: str) -> Metric:
    """What a metric means, found by its name; it measures only if it needs no weights."""
    if name not in METRICS:
        raise InvalidCase(f"There is no metric {name!r}; choose from {', '.join(sorted(METRICS))}.")
    return METRICS[name]()


def build_metrics(names: Iterable[str], weights: str | Path | None = None) -> dict[str, Metric]:
    """Metrics by name; those that need weights only measure where these are at hand."""
    folder = find_weights(weights)
    described = {name: describe_metric(name) for name in names}
    return {name: one if folder is None else one.with_weights(folder) for name, one in described.items()}


def standard_metrics(weights: str | Path | None = None) -> dict[str, Metric]:
    """The metrics of every audit."""
    return build_metrics((name for name, metric in METRICS.items() if metric.standard), weights)


def label_metrics() -> dict[str, Metric]:
    return build_metrics(name for name, metric in METRICS.items() if metric.serves is Kind.LABELS)
