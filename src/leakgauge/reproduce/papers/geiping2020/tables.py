"""Tables 1 to 3 and Figures 4 to 6: what was published, what measures it, what differs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from leakgauge.attacks.recipes import (
    inverting_gradients,
    inverting_gradients_l2,
    inverting_gradients_lbfgs,
    inverting_gradients_no_tv,
)
from leakgauge.data import Cifar10, Cifar100
from leakgauge.reproduce.measures.updates import Setting
from leakgauge.reproduce.papers.geiping2020.published import (
    CLIENTS,
    EUCLIDEAN,
    FIGURE4,
    FIGURE5,
    LENET,
    OURS,
    PROPOSED,
    PUBLISHED,
    RESNET,
    TABLE3,
)
from leakgauge.reproduce.papers.geiping2020.settings import (
    figure4,
    figure5,
    figure6,
    plain_nets,
    table1,
    table2,
    table3,
)
from leakgauge.reproduce.scales import Scale
from leakgauge.reproduce.table import Published, Row, Table


def _figure5_label(steps: int, rate: float) -> str:
    return f"{steps} step{'s' * (steps > 1)}, rate 1e{round(math.log10(rate))}"


def _rows(source: str, settings: Mapping[str, Callable[[Scale], Setting]], group: str | None = None) -> tuple[Row, ...]:
    """A row for each setting, with what is published under its label; the rows of our own say that they are.

    ``group`` is what the order of the rows is about, where that is what the paper speaks of.
    """

    def published(label: str) -> Published | None:
        mean, deviation = PUBLISHED.get(source, {}).get(label, (None, None))
        spread: Any = "standard error" if source == TABLE3 else "standard deviation"
        return None if OURS in label else Published(mean, deviation, source, spread)

    return tuple(Row(label, published(label), at, group=group) for label, at in settings.items())


_BATCH = "batch of images, one gradient"
_LONG_RESNETS = (
    "At cpu scale residual networks start as torch starts them; at long and full scale by Kaiming's rule, fan out, as "
    "the paper's do, which is harder to attack. At long scale the images are those from 2000 on."
)
_LONG_CONVNET = (
    "At scale long the net has two convolutions of 32 channels, on which a search of 1000 steps settles well above its "
    "null; the images are those from 2000 on."
)

TABLES: tuple[Table, ...] = (
    Table(
        name="geiping2020/table1",
        title="Geiping et al. 2020, Table 1: one image from one gradient, against Euclidean distance with L-BFGS",
        dataset=Cifar10(),
        rows=_rows(
            "Table 1",
            {
                f"{architecture}, {'trained' if trained else 'untrained'}: {attack}": partial(
                    table1, architecture, trained, attack
                )
                for attack in (EUCLIDEAN, PROPOSED, OURS)
                for architecture in (LENET, RESNET)
                for trained in (False, True)
            },
        ),
        assumptions=(
            "Our L-BFGS keeps pixels in [0, 1] and searches along the line; the paper's took steps of 1e-4.",
            "Its 300 iterations are taken as calls of torch's L-BFGS, 20 evaluations each: 6000 of our steps.",
            "At cpu scale this baseline has one restart and, on the untrained LeNet, 60 seconds where others have 6.",
            "The paper does not give its schedule of training: at cpu and full scale plain SGD without augmentation.",
            "At cpu scale the images are those from 100 on, at long those from 2000 on, as our recipe was tuned on "
            "earlier ones; at full scale they are the paper's, 0 to 99, and our own row is flattered.",
            f"{_LONG_RESNETS} The trained one has weights of another training, 16 channels wide, and the trained LeNet "
            "those of one with weight decay and augmentation. Attacks on LeNet, and the proposed one on residual "
            "networks, have the paper's iterations, others on residual networks 20 CPU seconds.",
        ),
    ),
    Table(
        name="geiping2020/table2",
        title="Geiping et al. 2020, Table 2: federated averaging, E epochs over n images in mini-batches of B",
        dataset=Cifar10(),
        rows=_rows(
            "Table 2",
            {
                **{str(client): partial(table2, client, tv) for client, tv in CLIENTS.items()},
                **{f"{client}: {OURS}": partial(table2, client, None) for client in CLIENTS},
            },
        ),
        assumptions=(
            "The head of Table 2 names settings that cannot be (1 image, batch size 8); the order is that of Table 5.",
            "The clients' learning rate is not given for this table; 1e-4 as in Figure 5.",
            _LONG_CONVNET,
            "Rows of our own explain the update by one gradient in the middle of the client's way, which is cheaper "
            "than its steps one by one and, at such a rate, nearly the same.",
            "Images are paired with originals by least squared error; ± is over updates, each the mean of its images.",
        ),
    ),
    Table(
        name="geiping2020/table3",
        title="Geiping et al. 2020, Table 3: ablation on a trained ResNet-18",
        dataset=Cifar10(),
        rows=_rows(
            TABLE3,
            {
                "basic setup": partial(table3, inverting_gradients()),
                "L2 loss instead of cosine similarity": partial(table3, inverting_gradients_l2()),
                "without total variation": partial(table3, inverting_gradients_no_tv()),
                "L-BFGS instead of Adam": partial(table3, inverting_gradients_lbfgs()),
            },
            group="ablation",
        ),
        assumptions=(
            "± is the standard error in the paper, the standard deviation over updates in our column.",
            "At scale long the net has two convolutions of 32 channels and ReLU, trained for 3000 steps; images from "
            "2000 on.",
            "The number of iterations is not given; 4800 at long and full scale, as in appendix C.1.",
        ),
    ),
    Table(
        name="geiping2020/figure4",
        title="Geiping et al. 2020, Figure 4: width and depth of the network",
        dataset=Cifar10(),
        rows=_rows(
            "Figure 4",
            {
                **{label: partial(figure4, *net, False) for label, net in FIGURE4.items()},
                **{f"{label}: {OURS}": partial(figure4, *net, True) for label, net in FIGURE4.items()},
            },
            group="width and depth",
        ),
        assumptions=(
            "Whether the models are trained is not said; taken as untrained.",
            f"{_LONG_RESNETS} Each is a quarter as wide as in the paper, the narrowest half as wide, and the paper's "
            "attack has 1600 steps, ours 20 CPU seconds.",
            "The paper's ± is the average standard deviation of one experiment, ours that over images.",
            "The number of iterations is not given; 4800 at full scale, as in appendix C.1.",
        ),
    ),
    Table(
        name="geiping2020/width",
        title="Width and depth of plain networks, by the attack of Geiping et al. 2020 (ours, not in the paper)",
        dataset=Cifar10(),
        rows=tuple(
            Row(f"{depth} convolutions, width {width}", None, partial(plain_nets, depth, width))
            for depth, width in ((2, 8), (2, 32), (2, 64), (3, 32), (5, 32))
        ),
        assumptions=(
            "What Figure 4 asks of residual networks, on untrained nets of 3x3 convolutions, ReLU and a linear layer, "
            "which the attack settles on within minutes of a CPU.",
        ),
    ),
    Table(
        name="geiping2020/figure5",
        title="Geiping et al. 2020, Figure 5: number of local steps and their learning rate, one image",
        dataset=Cifar10(),
        rows=_rows(
            "Figure 5: PSNR printed in the picture only",
            {
                **{_figure5_label(*at): partial(figure5, *at, 1e-4) for at in FIGURE5},
                **{
                    f"{_figure5_label(*at)}: {OURS}": partial(figure5, *at, None)
                    for at in FIGURE5
                    if at in ((5, 1e-4), (100, 1e-4), (5, 1e-1))
                },
            },
        ),
        assumptions=(
            "The text says that 100 steps leave the quality unimpeded and that a rate of 1e-1 is the one failure.",
            "The figure shows one image; the other numbers of steps and rates are chosen here.",
            _LONG_CONVNET,
            "Rows of our own explain the update by one gradient in the middle of the client's way.",
        ),
    ),
    Table(
        name="geiping2020/figure6",
        title="Geiping et al. 2020, Figure 6: a batch of 100 CIFAR-100 images, ResNet32-10",
        dataset=Cifar100(),
        rows=_rows(
            "Figure 6: no PSNR given", {_BATCH: partial(figure6, False), f"{_BATCH}: {OURS}": partial(figure6, True)}
        ),
        assumptions=(
            "The best images are picked by comparison with the originals, as in the paper; those of the null likewise.",
            "No label comes twice.",
            "At scale long the paper's attack meets a net of two convolutions of 32 channels and has 600 steps, and "
            "ours a fully connected net of 2000 and 100 units, out of which a closed form takes the batch: the two "
            "rows are of different nets, both untrained, and neither is the paper's; images from 2000 on.",
            "The authors' notebook trains the model for ten epochs, as does full scale; below that it is untrained.",
        ),
        best=5,
    ),
)
